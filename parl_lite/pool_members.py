"""One actor of a pool with what was sent to it, and the calls of one use of the pool. Knows proxies, not who makes them."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from parl_lite import frames
from parl_lite.errors import ActorLostError, RemoteError
from parl_lite.futures import Future
from parl_lite.pool_state import Broadcast, Broadcasts, Receipts
from parl_lite.proxy import Futures, Proxy
from parl_lite.refs import Contents

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Member:
    """One actor of a pool."""

    def __init__(self, seat: int, actor: Proxy) -> None:
        self.seat = seat
        self.actor = actor
        self.since = time.monotonic()
        self.n_calls = 0
        """Calls that it has answered."""
        self.seconds = 0.0
        """The times from call to result, all together."""
        self.receipts = Receipts()
        self._futures = Futures(actor)
        self._broadcasts: deque[tuple[Broadcast, Future]] = deque()

    @property
    def loss(self) -> ActorLostError | None:
        """Why it is gone, None as far as is known."""
        return self.actor._parl_link.channel().loss

    def call(self, method: str, arguments: Arguments) -> Future:
        """Call it; raises ActorLostError, SerializationError."""
        args, kwargs = arguments
        return getattr(self._futures, method)(*args, **kwargs)  # type: ignore[no-any-return]

    def catch_up(self, broadcasts: Broadcasts) -> Future | None:
        """Send what it has not got yet, in order; return the future of the last. Raises like `call`."""
        future = None
        for broadcast in broadcasts.missing(self.receipts):
            future = self._send(broadcast)
            self.receipts.sent[broadcast.method] = broadcast.number
            self._broadcasts.append((broadcast, future))
        return future

    def _send(self, broadcast: Broadcast) -> Future:
        if not isinstance(broadcast.arguments, Contents):
            return self.call(broadcast.method, broadcast.arguments)
        channel = self.actor._parl_link.channel()
        return channel.request(frames.CALL, broadcast.method, broadcast.arguments, f"an argument of {broadcast.method}")

    def acknowledge(self) -> None:
        """Take note of the broadcasts that it has run; raises what one of them raised, once."""
        while self._broadcasts and self._broadcasts[0][1].done():
            broadcast, future = self._broadcasts.popleft()
            if future.cancelled() or loss_of(future) is not None:
                continue
            self.receipts.acknowledged[broadcast.method] = broadcast.version
            future.result()


@dataclass(frozen=True)
class Call:
    """One call under way."""

    member: Member
    item: int
    """Number of the item, in a `map`."""
    sent_at: float


class Calls:
    """What one use of a pool has under way, oldest first. What it has not taken counts as under way."""

    def __init__(self) -> None:
        self.under_way: dict[Future, Call] = {}
        self._n: Counter[Member] = Counter()

    def send(self, member: Member, method: str, arguments: Arguments, item: int = 0) -> None:
        """Call a member; raises like `Member.call`."""
        sent_at = time.monotonic()
        self.under_way[member.call(method, arguments)] = Call(member, item, sent_at)
        self._n[member] += 1

    def n_of(self, member: Member) -> int:
        """Return how many calls a member has, those whose results wait here among them."""
        return self._n[member]

    def n_waiting(self, member: Member) -> int:
        """Return how many results of a member wait here."""
        return sum(call.member is member and future.done() for future, call in self.under_way.items())

    def take(self, future: Future) -> Call:
        """Return a call that has ended; it is no longer under way."""
        call = self.under_way.pop(future)
        self._n[call.member] -= 1
        if not self._n[call.member]:
            del self._n[call.member]  # or lost members would gather here
        return call

    def cancel(self) -> None:
        """Take back what has not begun; results of what has are dropped."""
        while self.under_way:
            future, _ = self.under_way.popitem()  # the last first: none may begin meanwhile
            future.cancel()
        self._n.clear()


def loss_of(future: Future) -> ActorLostError | None:
    """Return why a call that has ended got no answer; an answer may be an ActorLostError, too, of another actor."""
    error = future.exception()
    return error if isinstance(error, ActorLostError) and not isinstance(error, RemoteError) else None
