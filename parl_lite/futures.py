"""Futures of calls, and waiting for many of them. Knows what a channel must offer, no socket.

Whoever waits reads the sockets of the channels itself: it polls their descriptors and its own waker, which other threads
wake when they settle a future while they read.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError
from typing import Any, Protocol

from parl_lite.refs import Ref
from parl_lite.waker import Waker, of_this_thread

FIRST_COMPLETED = "FIRST_COMPLETED"
FIRST_EXCEPTION = "FIRST_EXCEPTION"
ALL_COMPLETED = "ALL_COMPLETED"

PENDING, DONE, FAILED, CANCELLED = range(4)


class Source(Protocol):
    """What a future needs of the channel that its result comes from."""

    label: str
    poll_slice: float

    @property
    def descriptor(self) -> int | None:
        """What to poll for answers, after `look`; None if only a waker tells of them."""

    def wait_for(self, future: Future, timeout: float | None) -> None:
        """Return when the future is settled; raises TimeoutError."""

    def look(self) -> None:
        """Take what has arrived, and notice a loss, without waiting."""

    def is_oldest(self, future: Future) -> bool:
        """Return whether no earlier call waits for its answer."""

    def cancel(self, future: Future) -> bool:
        """Take a call back; return whether it is cancelled."""

    def call_when_done(self, future: Future, callback: Callable[[Future], object]) -> bool:
        """Register a callback; False when the future is settled already."""

    def listen(self, waker: Waker) -> None:
        """Wake `waker` whenever another thread settles futures."""

    def unlisten(self, waker: Waker) -> None:
        """Wake it no more."""


class Future:
    """The result of a call that is under way.

    Has the methods of concurrent.futures.Future, PARL's `get`, and can be awaited in asyncio. The result may be read
    any number of times, from any thread.
    """

    __slots__ = ("__weakref__", "_callbacks", "_channel", "_request", "_state", "_value")

    def __init__(self, channel: Source, request: int = 0) -> None:
        self._channel = channel
        self._state = PENDING
        self._value: Any = None
        self._request = request
        self._callbacks: list[Callable[[Future], object]] | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Return what the call returned, or raise what it raised.

        Raises:
            TimeoutError: after `timeout` seconds; the result is not lost, ask again.
            RemoteError: the actor's code raised; also an instance of the original class where possible.
            ActorLostError: the actor's process is gone.
            concurrent.futures.CancelledError: the call was cancelled.
        """
        if self._state == PENDING:
            self._channel.wait_for(self, timeout)
        if self._state == DONE:
            return self._value
        if self._state == CANCELLED:
            raise CancelledError()
        try:
            raise self._value.with_traceback(None)
        finally:
            del self  # the traceback keeps this frame: with the future in it, an actor would live until the next gc

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised, or None; raises TimeoutError and CancelledError like `result`."""
        if self._state == PENDING:
            self._channel.wait_for(self, timeout)
        if self._state == CANCELLED:
            raise CancelledError()
        return self._value if self._state == FAILED else None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the result as PARL does: with block=False it must be here already, else TimeoutError."""
        return self.result(timeout if block else 0.0)

    def get_nowait(self) -> Any:
        """Return the result if it is here, else raise TimeoutError."""
        return self.result(0.0)

    def done(self) -> bool:
        """Return whether the call has ended, one way or another."""
        if self._state == PENDING:
            self._channel.look()
        return self._state != PENDING

    def running(self) -> bool:
        """Return whether the call may be running now: it is the oldest of its handle without an answer."""
        return not self.done() and self._channel.is_oldest(self)

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self._state == CANCELLED

    def cancel(self) -> bool:
        """Take the call back if it has not begun; return whether it is cancelled now.

        Calls of one handle run in order, so a call behind an unanswered one has not begun. The actor skips it; if
        it begins in the very moment of cancelling, it runs but its result is dropped.
        """
        if self.done() or self.running():
            return self._state == CANCELLED
        return self._channel.cancel(self)

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call `callback(self)` when the call has ended: at once if it has, else from whichever thread sees it."""
        if not self._channel.call_when_done(self, callback):
            callback(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in asyncio, without a thread of its own per call."""
        import asyncio  # where it is used: most programs await nothing

        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def wake() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def tell(_: Future) -> None:
            loop.call_soon_threadsafe(wake)

        self.add_done_callback(tell)
        yield from arrived
        return self.result(0.0)

    def __repr__(self) -> str:
        state = ("pending", "finished", "raised", "cancelled")[self._state]
        return f"<Future {state} of {self._channel.label}>"

    def settle(self, state: int, value: Any) -> None:
        """Set the outcome, once; for the channel."""
        self._value = value
        self._state = state  # last: readers without the channel's lock look at it first


def wait_any(futures: Iterable[Future], timeout: float | None) -> bool:
    """Return True when at least one of the pending futures is settled, False after `timeout` seconds."""
    pending = [future for future in futures if future._state == PENDING]
    deadline = None if timeout is None else time.monotonic() + timeout
    channels = {id(future._channel): future._channel for future in pending}
    waker = of_this_thread()
    listening: list[Source] = []
    try:
        for channel in channels.values():
            channel.listen(waker)
            listening.append(channel)
        while True:
            waker.clear()
            for channel in listening:
                channel.look()
            if any(future._state != PENDING for future in pending):
                return True
            left = listening[0].poll_slice if listening else 0.0
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return False
            poll(waker, listening, left)
    finally:
        for channel in listening:
            channel.unlisten(waker)


def poll(waker: Waker, channels: Iterable[Source], seconds: float | None) -> None:
    """Return when there may be news, after `seconds` at the latest."""
    poller = select.poll()
    poller.register(waker.fileno(), select.POLLIN)
    for channel in channels:
        if channel.descriptor is not None:
            poller.register(channel.descriptor, select.POLLIN)
    poller.poll(None if seconds is None else seconds * 1000)


def wait(
    futures: Iterable[Future], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> tuple[set[Future], set[Future]]:
    """Wait for futures of any actors; return (done, not done), as concurrent.futures.wait does.

    Args:
        timeout: seconds, None for as long as it takes.
        return_when: "ALL_COMPLETED", "FIRST_COMPLETED" or "FIRST_EXCEPTION".
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(f"return_when is {return_when!r}: use ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION")
    everything = set(futures)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        done = {future for future in everything if future._state != PENDING}
        failed = any(future._state == FAILED for future in done)
        enough = done and (return_when == FIRST_COMPLETED or (return_when == FIRST_EXCEPTION and failed))
        if enough or len(done) == len(everything):
            return done, everything - done
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not wait_any(everything - done, left):
            return done, everything - done


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterable[Future]:
    """Yield futures as they end; raises TimeoutError when some are left after `timeout` seconds in all."""
    left = list(dict.fromkeys(futures))
    n_all = len(left)
    deadline = None if timeout is None else time.monotonic() + timeout
    while left:
        done = [future for future in left if future._state != PENDING]
        yield from done
        left = [future for future in left if future not in set(done)] if done else left
        if done or not left:
            continue
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not wait_any(left, remaining):
            raise TimeoutError(f"{len(left)} of {n_all} calls have not ended within {timeout} s")


def get(futures: Any, timeout: float | None = None) -> Any:
    """Return the result of a future, the value of a Ref, or those of a list of them in its order.

    Raises like `Future.result`. Arrays in the value of a Ref cannot be written to.
    """
    if isinstance(futures, Future | Ref):
        return futures.result(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    return [future.result(None if deadline is None else max(0.0, deadline - time.monotonic())) for future in futures]
