"""ActorPool: n actors of one class, used together. Knows calls and what to do with their results, not who makes the actors.

stream, map ──▶ Calls of this use ──▶ Member ──▶ actor            (pool_members.py)
broadcast   ──▶ Broadcasts ─────────────┘
all of them ──▶ Crew ──▶ Roster: who is there, who is to be made   (pool_crew.py, pool_state.py)
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from parl_lite.creation import what
from parl_lite.errors import ActorLostError, ResourceError, SerializationError
from parl_lite.futures import Future
from parl_lite.lending import LEAST
from parl_lite.payload import Decoder, Encoder
from parl_lite.pool_crew import Crew, Rank
from parl_lite.pool_members import Arguments, Call, Calls, Member, loss_of
from parl_lite.pool_state import MAX_FAILURES, Backlog
from parl_lite.refs import Contents, Ref, put_parts
from parl_lite.remote import RemoteClass

RANK = Rank.OWN
"""A keyword argument of ActorPool in whose place each actor gets a number of its own."""


class Item(NamedTuple):
    """One result of a stream."""

    actor: int
    """The number of the actor in the pool, from 0; one that takes the place of a lost actor has its number."""
    result: Any


class ActorPool:
    """n actors of a remote class, made at the same time, kept alive, and used together.

        with ActorPool(RolloutWorker, 8, env_name) as pool:
            pool.broadcast("set_weights", weights)
            for actor, rollout in pool.stream("sample"):
                ...

    A lost actor is replaced as soon as there is a slot, with the arguments it was made with, as they were at the
    beginning; where there is none, the others go on, and the pool grows when machines join. It does all this while it is
    used: there is no thread behind it, and it is for the thread that made it alone. `len(pool)` is the number of actors
    that are there now, `list(pool)` are they.

    A keyword argument that is `parl_lite.pool.RANK` is a number of the actor's own, from 0 to n - 1, and another, above
    those, for an actor that takes the place of a lost one: so each has, for example, random streams of its own.

    An option max_restarts of the class does not count here: the pool replaces lost actors itself.
    """

    def __init__(self, cls: Any, n: int, /, *args: Any, **kwargs: Any) -> None:
        """Make the actors `cls(*args, **kwargs)`; return when they are there, or as many as there are slots for.

        Raises:
            NotConnectedError: there is no cluster.
            ResourceError: there is no slot for even one of them within the timeout of `connect`, or never can be.
            RemoteError: the constructor raised.
            ActorLostError: actors are lost in their constructor, again and again.
        """
        _check_class(cls)
        _check_count("n", n)
        self._name = cls.__name__
        self._uses: weakref.WeakSet[Calls] = weakref.WeakSet()
        self._n = n
        self._n_dropped = [0] * n
        self._crew = Crew(cls, n, _fixed((args, kwargs), what(cls)))
        try:
            self._crew.open()
        except BaseException:
            self._crew.close()
            raise

    # --- using it ------------------------------------------------------------------------------------------

    def stream(self, method: str, /, *args: Any, in_flight: int = 2, **kwargs: Any) -> Iterator[Item]:
        """Call a method of all actors again and again; yield (actor, result) as they come, until the caller stops.

        Each actor has `in_flight` calls, those included whose results wait to be taken: so it does not run ahead of
        the caller. The next call is made when a result is handed out; the arguments are encoded anew for each. When
        the stream is closed (or forgotten), calls that have not begun are taken back. Calls of lost actors are dropped.

        Raises:
            RemoteError: the method raised, or that of a broadcast before. This stream has ended; the pool has not.
            ActorLostError: the same actor is lost again and again before it has answered anything.
            ResourceError: no actor is left, and there is no slot for another.
        """
        _check_method(method)
        _check_count("in_flight", in_flight)
        self._crew.check_usable()
        return self._stream(method, (args, kwargs), in_flight)

    def map(self, method: str, iterable: Iterable[Any], timeout: float | None = None) -> list[Any]:
        """Return `method(item)` for all items, in their order, each computed by whatever actor is free.

        An item whose actor was lost goes to another; the lost one may have begun with it.

        Raises:
            TimeoutError: some have no result after `timeout` seconds. What has not begun is taken back.
            RemoteError: the method raised. The other items are given up.
            ActorLostError: three actors were lost while they had the same item.
            ResourceError: no actor is left, and there is no slot for another.
        """
        _check_method(method)
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is {timeout!r}: it must be None or a number of seconds.")
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        backlog = Backlog(iterable)
        calls = self._new_use()
        try:
            while not backlog.is_done():
                self._deal(calls, method, backlog)
                self._collect(calls, self._crew.wait(calls, deadline), method, backlog)
                if not backlog.is_done() and time.monotonic() >= deadline:
                    n_left = len(backlog.items) - backlog.n_done
                    raise TimeoutError(f"{n_left} of {len(backlog.items)} items have no result within {timeout} s")
        finally:
            calls.cancel()
        return backlog.results()

    def broadcast(self, method: str, /, *args: Any, version: int | None = None, **kwargs: Any) -> list[Future]:
        """Call a method of all actors without waiting; return their futures.

        The arguments are fixed now, and large ones go once to each machine. Each actor runs it after the calls that were
        made before, and before those that are made after. Actors that come later get the last broadcast of each method
        before anything else. What a broadcast raises is raised when the pool is used next.

        Args:
            version: a number above that of the last broadcast of the method, for the lag in `figures`; not passed on.

        Raises:
            ValueError: the version is not above the last.
            SerializationError: an argument cannot travel; nothing was sent.
        """
        _check_method(method)
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise TypeError(f"version is {version!r}: it must be a whole number.")
        members = self._crew.tend()
        arguments = _stored((args, kwargs), f"an argument of {method}", self._n)
        self._crew.broadcasts.record(method, arguments, version)
        futures = [self._crew.catch_up(member) for member in members]
        return [future for future in futures if future is not None]

    def figures(self) -> list[dict[str, Any]]:
        """Return how each place is doing.

        A list of n dicts:
            actor: its number
            alive: whether there is an actor now
            calls: how many `stream` and `map` calls the actor there has answered
            calls_per_second: the same, for each second since it was made
            waiting_seconds: mean time from a call to its result, spent behind other calls and unread included
            in_flight: calls under way, without those whose result has come
            results_waiting: results that have come and were not handed out
            restarts: how many actors there came after the first
            dropped: calls that were lost with actors there
            lag: the version of the last broadcast minus the version that it has run
        """
        self._crew.tend()
        return [self._figures_of(number) for number in range(len(self._crew.seats))]

    @property
    def actors(self) -> list[Any]:
        """The actors that are there now, in the order of their numbers."""
        self._crew.look_after()
        return [self._crew.members[seat].actor for seat in sorted(self._crew.members)]

    def __len__(self) -> int:
        self._crew.look_after()
        return len(self._crew.members)

    def __bool__(self) -> bool:
        return True  # also without an actor

    def __iter__(self) -> Iterator[Any]:
        return iter(self.actors)

    def __repr__(self) -> str:
        state = "closed" if self._crew.closed else f"{len(self._crew.members)} of {len(self._crew.seats)} actors"
        return f"<ActorPool of {self._name}, {state}>"

    # --- ending it -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        self._crew.close()

    def __enter__(self) -> ActorPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- calls ---------------------------------------------------------------------------------------------

    def _new_use(self) -> Calls:
        calls = Calls()
        self._uses.add(calls)
        return calls

    def _stream(self, method: str, arguments: Arguments, in_flight: int) -> Iterator[Item]:
        calls = self._new_use()
        try:
            while True:
                for member in self._crew.tend():
                    self._fill(calls, member, method, arguments, in_flight)
                ended = deque(self._crew.wait(calls))
                while ended:
                    future = ended.popleft()  # a result that was yielded is the caller's alone
                    call = calls.take(future)
                    loss = loss_of(future)
                    if loss is not None:
                        self._drop(call, loss)
                        continue
                    result = self._result(call, future)
                    self._fill(calls, call.member, method, arguments, in_flight)
                    yield Item(call.member.seat, result)
        finally:
            calls.cancel()

    def _fill(self, calls: Calls, member: Member, method: str, arguments: Arguments, in_flight: int) -> None:
        while self._crew.members.get(member.seat) is member and calls.n_of(member) < in_flight:
            self._crew.send(calls, member, method, arguments)

    def _deal(self, calls: Calls, method: str, backlog: Backlog) -> None:
        members = self._crew.tend()
        for place, number in backlog.deal([calls.n_of(member) for member in members]):
            if not self._crew.send(calls, members[place], method, ((backlog.items[number],), {}), number):
                backlog.take_back(number, was_running=False)

    def _collect(self, calls: Calls, ended: Sequence[Future], method: str, backlog: Backlog) -> None:
        losers: set[Member] = set()
        for future in ended:
            call = calls.take(future)
            loss = loss_of(future)
            if loss is None:
                backlog.finish(call.item, self._result(call, future))
                continue
            self._drop(call, loss)
            was_running = call.member not in losers  # of the calls of one actor the oldest was
            losers.add(call.member)
            if not backlog.take_back(call.item, was_running=was_running):
                self._crew.forget(loss)
                raise _lost_too_often(method, call.item, loss)

    def _result(self, call: Call, future: Future) -> Any:
        """Return what a call returned; raises what it, or a broadcast before it, raised."""
        member = call.member
        member.n_calls += 1
        member.seconds += time.monotonic() - call.sent_at
        member.acknowledge()
        return future.result()

    def _drop(self, call: Call, loss: ActorLostError) -> None:
        self._n_dropped[call.member.seat] += 1
        self._crew.lose(call.member, loss)

    def _figures_of(self, number: int) -> dict[str, Any]:
        member, uses = self._crew.members.get(number), list(self._uses)
        figures = {
            "actor": number,
            "alive": member is not None,
            "calls": 0,
            "calls_per_second": 0.0,
            "waiting_seconds": 0.0,
            "in_flight": 0,
            "results_waiting": 0,
            "restarts": max(0, self._crew.seats[number].n_born - 1),
            "dropped": self._n_dropped[number],
            "lag": 0,
        }
        if member is not None:
            n_waiting = sum(calls.n_waiting(member) for calls in uses)
            figures |= {
                "calls": member.n_calls,
                "calls_per_second": member.n_calls / (time.monotonic() - member.since),
                "waiting_seconds": member.seconds / max(1, member.n_calls),
                "in_flight": sum(calls.n_of(member) for calls in uses) - n_waiting,
                "results_waiting": n_waiting,
                "lag": self._crew.broadcasts.lag(member.receipts),
            }
        return figures


def _lost_too_often(method: str, number: int, loss: ActorLostError) -> ActorLostError:
    error = type(loss)(f"map of {method!r}: {MAX_FAILURES} actors were lost with item {number}. The last: {loss}")
    vars(error).update(vars(loss))
    return error


def _fixed(arguments: Arguments, name: str) -> Arguments:
    """Return a copy of arguments, as an actor would get them."""
    fixed: Arguments = Decoder().decode(Encoder().encode(arguments, what=name))
    return fixed


def _refuse(_: Ref) -> NoReturn:
    raise SerializationError("a Ref travels in a call")


def _stored(arguments: Arguments, name: str, n_actors: int) -> Arguments | Contents:
    """Return a copy of arguments for several actors: if they are large, one in memory that the actors share."""
    try:
        parts = Encoder({Ref: _refuse}).encode_parts(arguments, what=name)
        if n_actors > 1 and sum(map(len, parts)) >= LEAST:
            return Contents(put_parts(parts))
    except (SerializationError, ResourceError):
        pass  # it holds a Ref, or it cannot travel at all, or there is no room
    return _fixed(arguments, name)


def _check_class(cls: Any) -> None:
    if not isinstance(cls, RemoteClass):
        raise TypeError(f"ActorPool is for classes decorated with @parl_lite.remote_class, and {cls!r} is not one.")


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: it must be a whole number.")
    if value < 1:
        raise ValueError(f"{name} is {value}: it must be at least 1.")


def _check_method(method: Any) -> None:
    if not isinstance(method, str) or not method.isidentifier() or method.startswith("__"):
        raise TypeError(f"method is {method!r}: it must be the name of a method of the actors.")


__all__ = ["RANK", "ActorPool", "Item"]
