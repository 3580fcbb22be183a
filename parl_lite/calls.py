"""The data path: one actor's socket, the futures of its calls, and waiting for them. Knows no cluster and no class of the user.

No thread stands between a caller and the socket: whoever waits for a result reads the socket, and hands out whatever else arrives.

    one thread        recv() with a time-out of `poll_slice`, lock held: as fast as the bare socket
    several threads   each polls the socket's descriptor and its own waker, without the lock; whoever finds messages takes them all
                      under the lock and wakes the other listeners
    wait, as_completed, timeouts   the same as several threads, over many sockets

The descriptor of a ZeroMQ socket is edge-triggered: every access that may consume the edge takes all messages before it lets go of
the lock. A connection that breaks makes the socket unwritable (ZMQ_IMMEDIATE), so a lost job is seen here without any message;
the reason follows on the control path, and is waited for `loss_patience`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError
from typing import Any

import zmq

from parl_lite import frames, remote_errors
from parl_lite.errors import ActorLostError, NotConnectedError, RemoteError, SerializationError
from parl_lite.frames import HEADER
from parl_lite.payload import Decoder, Encoder
from parl_lite.settings import Settings
from parl_lite.waker import Waker, of_this_thread

FIRST_COMPLETED = "FIRST_COMPLETED"
FIRST_EXCEPTION = "FIRST_EXCEPTION"
ALL_COMPLETED = "ALL_COMPLETED"

_DONTWAIT = int(zmq.DONTWAIT)  # plain numbers: an enum's operators would cost a microsecond each on the hot path
_SNDMORE = int(zmq.SNDMORE)
_POLLOUT = int(zmq.POLLOUT)

_PENDING, _DONE, _FAILED, _CANCELLED = range(4)


class MethodMarker:
    """What reading an attribute gives when it is a method of the remote object."""


METHOD = MethodMarker()


class Future:
    """The result of a call that is under way.

    Has the methods of concurrent.futures.Future, PARL's `get`, and can be awaited in asyncio. The result may be read
    any number of times, from any thread.
    """

    __slots__ = ("__weakref__", "_callbacks", "_channel", "_request", "_state", "_value")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._state = _PENDING
        self._value: Any = None
        self._request = 0
        self._callbacks: list[Callable[[Future], object]] | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Return what the call returned, or raise what it raised.

        Raises:
            TimeoutError: after `timeout` seconds; the result is not lost, ask again.
            RemoteError: the actor's code raised; also an instance of the original class where possible.
            ActorLostError: the actor's process is gone.
            concurrent.futures.CancelledError: the call was cancelled.
        """
        if self._state == _PENDING:
            self._channel.wait_for(self, timeout)
        if self._state == _DONE:
            return self._value
        if self._state == _CANCELLED:
            raise CancelledError()
        raise self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised, or None; raises TimeoutError and CancelledError like `result`."""
        if self._state == _PENDING:
            self._channel.wait_for(self, timeout)
        if self._state == _CANCELLED:
            raise CancelledError()
        return self._value if self._state == _FAILED else None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the result as PARL does: with block=False it must be here already, else TimeoutError."""
        return self.result(timeout if block else 0.0)

    def get_nowait(self) -> Any:
        """Return the result if it is here, else raise TimeoutError."""
        return self.result(0.0)

    def done(self) -> bool:
        """Return whether the call has ended, one way or another."""
        if self._state == _PENDING:
            self._channel.look()
        return self._state != _PENDING

    def running(self) -> bool:
        """Return whether the call may be running now: it is the oldest of its handle without an answer."""
        return not self.done() and self._channel.is_oldest(self)

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self._state == _CANCELLED

    def cancel(self) -> bool:
        """Take the call back if it has not begun; return whether it is cancelled now.

        Calls of one handle run in order, so a call behind an unanswered one has not begun. The actor skips it; if
        it begins in the very moment of cancelling, it runs but its result is dropped.
        """
        if self.done() or self.running():
            return self._state == _CANCELLED
        return self._channel.cancel(self)

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call `callback(self)` when the call has ended: at once if it has, else from whichever thread sees it."""
        if not self._channel.call_when_done(self, callback):
            callback(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in asyncio, without a thread of its own per call."""
        import asyncio

        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def tell(_: Future) -> None:
            loop.call_soon_threadsafe(lambda: arrived.done() or arrived.set_result(None))

        self.add_done_callback(tell)
        yield from arrived
        return self.result(0.0)

    def __repr__(self) -> str:
        state = ("pending", "finished", "raised", "cancelled")[self._state]
        return f"<Future {state} of {self._channel.label}>"

    def _settle(self, state: int, value: Any) -> None:
        """Set the outcome; the channel's lock is held."""
        self._value = value
        self._state = state  # last: readers without the lock look at it first


class Channel:
    """The connection of one handle to one job. Calls are sent, and run, in the order of `request`."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        label: str,
        settings: Settings,
        *,
        trusted: bool = True,
        explain_loss: Callable[[], ActorLostError] | None = None,
    ) -> None:
        """Take over a connected (or connecting) DEALER.

        Args:
            label: "Actor host pid", for messages.
            trusted: whether pickled results are accepted.
            explain_loss: makes the error when the connection broke and the control path gave no reason.
        """
        self.label = label
        self.loss: ActorLostError | None = None
        self._socket = socket
        self._settings = settings
        self._trusted = trusted
        self._explain_loss = explain_loss or self._unexplained
        self._encoder = Encoder()
        self._decoder = Decoder(allow_pickle=trusted)
        self._lock = threading.Lock()  # guards everything below, and the socket; taken by whoever calls or waits
        self._contended = False
        self._pending: dict[int, Future] = {}
        self._last_request = 0
        self._listeners: list[Waker] = []
        self._down_since: float | None = None
        self._patience = settings.liveness_timeout  # until it stood once; then loss_patience
        self._fd = int(socket.get(zmq.FD))
        self._pid = os.getpid()

    # --- calling -----------------------------------------------------------------------------------------------------------

    def request(self, kind: int, name: str, value: Any, what: str) -> Future:
        """Send a request; its value is fixed now. Raises SerializationError, naming `what`, before anything is sent."""
        future = Future(self)
        with self._entered():
            self._begin(future, kind, name, value, what)
        return future

    def call(self, name: str, value: Any, what: str) -> Any:
        """Call a method and return its result: `request(...).result()` for the usual case, in one go under the lock."""
        future = Future(self)
        with self._entered():
            self._begin(future, frames.CALL, name, value, what)
            if not self._contended:
                self._receive_one()
        return future._value if future._state == _DONE else future.result()

    def _begin(self, future: Future, kind: int, name: str, value: Any, what: str) -> None:
        if self.loss is not None:
            raise self.loss
        parts = self._encoder.encode_parts(value, what=what)
        self._last_request = request = self._last_request + 1
        future._request = request
        self._pending[request] = future
        try:
            self._send(*frames.build(kind, request, name.encode(), parts))
        except BaseException:
            self._pending.pop(request, None)
            raise
        if self._listeners:
            self._take_all()  # sending may have consumed the edge that a listener polls for

    def cancel(self, future: Future) -> bool:
        """Ask the job to skip a call; the future is cancelled at once."""
        with self._entered():
            if self._pending.pop(future._request, None) is None:
                return future._state == _CANCELLED
            future._settle(_CANCELLED, None)
            self._send(*frames.build(frames.CANCEL, future._request, b"", ()))
            self._after(future)
            return True

    def is_oldest(self, future: Future) -> bool:
        """Return whether no earlier call of this handle waits for its answer."""
        return next(iter(self._pending), None) == future._request

    def close(self) -> None:
        """Close the socket; what is under way fails."""
        with self._entered():
            self.loss = self.loss or ActorLostError(f"the handle of {self.label} was destroyed.")
            self._fail_pending()
            self._socket.close(0)

    def lose(self, loss: ActorLostError) -> None:
        """The control path says that the job is gone: whoever waits learns it after the results that still came."""
        if self.loss is None:
            self.loss = loss
        for listener in list(self._listeners):
            listener.wake()

    # --- waiting -----------------------------------------------------------------------------------------------------------

    def wait_for(self, future: Future, timeout: float | None) -> None:
        """Return when the future is settled; raises TimeoutError."""
        if timeout is None:
            while not self._contended and future._state == _PENDING:
                with self._entered():
                    self._receive_one()
        if future._state == _PENDING and not wait_any([future], timeout):
            raise TimeoutError(f"no result from {self.label} within {timeout} s; the call goes on, ask again")

    def look(self) -> None:
        """Take what has arrived, without waiting."""
        with self._entered():
            if not self._socket.closed:
                self._take_all()
            self._look_for_loss()

    def call_when_done(self, future: Future, callback: Callable[[Future], object]) -> bool:
        """Register a callback; False when the future is settled already."""
        with self._entered():
            if future._state != _PENDING:
                return False
            future._callbacks = [*(future._callbacks or ()), callback]
        _reader.watch(self)
        return True

    def _receive_one(self) -> None:
        """Wait up to a slice for one message, as the only thread; the lock is held meanwhile."""
        if self._socket.closed:
            self._fail_pending()
            return
        try:
            frame = self._socket.recv()
        except zmq.Again:
            self._take_all()
            self._look_for_loss()
            return
        self._deliver(frame)
        if self._listeners:  # one came while this thread was blocked, and the edge it polls for may be consumed
            self._take_all()
            self._wake_listeners()

    # --- under the lock ------------------------------------------------------------------------------------------------------

    def _entered(self) -> threading.Lock:
        """Return the lock, to be entered; note when several threads want it, for then nobody may block inside."""
        if self._lock.locked():
            self._contended = True
        if os.getpid() != self._pid:
            raise NotConnectedError("an actor handle does not survive fork(): connect and create actors in the child.")
        return self._lock

    def _send(self, head: bytes, body: bytes | None) -> None:
        """Send one message; until the connection stands this waits."""
        while True:
            try:
                if body is None:
                    self._socket.send(head)
                else:
                    self._socket.send(head, _SNDMORE)
                    self._socket.send(body, copy=False)
            except zmq.Again:
                self._look_for_loss()
                if self.loss is not None:
                    raise self.loss from None
            else:
                return

    def _take_all(self) -> None:
        delivered = False
        while True:
            try:
                frame = self._socket.recv(_DONTWAIT)
            except zmq.Again:
                break
            self._deliver(frame)
            delivered = True
        if delivered:
            self._wake_listeners()

    def _deliver(self, frame: bytes) -> None:
        """Settle the future that a message answers."""
        if len(frame) < HEADER.size:
            return  # a probe: the job looks whether this handle is still there
        kind, large, _, request = HEADER.unpack_from(frame)
        payload = self._socket.recv(copy=False).buffer if large else memoryview(frame)[HEADER.size :]
        state, value = self._outcome(kind, payload)
        future = self._pending.pop(request, None)
        if future is not None:
            future._value = value
            future._state = state  # last: readers without the lock look at it first
            if future._callbacks:
                self._after(future)

    def _outcome(self, kind: int, payload: memoryview) -> tuple[int, Any]:
        try:
            if kind == frames.RESULT:
                return _DONE, self._decoder.decode(payload)
            if kind == frames.ERROR:
                packed: Any = self._decoder.decode(payload)
                return _FAILED, remote_errors.unpack(packed, self.label, self._trusted)
        except SerializationError as error:
            error.args = (f"the result of {self.label} cannot be read here: {error}",)
            return _FAILED, error
        if kind == frames.CANCELLED:
            return _CANCELLED, None
        return _DONE, METHOD if kind == frames.METHOD else kind

    def _after(self, future: Future) -> None:
        callbacks, future._callbacks = future._callbacks, None
        for callback in callbacks or ():
            _reader.call(callback, future)

    def _look_for_loss(self) -> None:
        """Fail what is under way if the job is gone; called whenever a wait found nothing."""
        if self.loss is None and not self._connection_stands():
            now = time.monotonic()
            if self._down_since is None:
                self._down_since = now
            if now - self._down_since >= self._patience:
                self.loss = self._explain_loss()
        if self.loss is not None:
            self._fail_pending()

    def _connection_stands(self) -> bool:
        if self._socket.closed:
            return False
        if self._socket.get(zmq.EVENTS) & _POLLOUT:
            self._down_since = None
            self._patience = self._settings.loss_patience
            return True
        return False

    def _fail_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for future in pending.values():
            future._settle(_FAILED, self.loss)
            self._after(future)
        if pending:
            self._wake_listeners()

    def _wake_listeners(self) -> None:
        for listener in self._listeners:
            listener.wake()

    def _unexplained(self) -> ActorLostError:
        return ActorLostError(f"{self.label} is lost: the connection to its process broke.")

    # --- listening from several threads -----------------------------------------------------------------------------------------

    def listen(self, waker: Waker) -> int:
        """Wake `waker` whenever another thread settles futures; return the descriptor to poll."""
        with self._entered():
            self._listeners.append(waker)
        return self._fd

    def unlisten(self, waker: Waker) -> None:
        """Wake it no more."""
        with self._entered():
            self._listeners.remove(waker)

    def __del__(self) -> None:
        if not self._socket.closed and os.getpid() == self._pid:
            self._socket.close(0)


def wait_any(futures: Iterable[Future], timeout: float | None) -> bool:
    """Return True when at least one of the pending futures is settled, False after `timeout` seconds."""
    pending = [future for future in futures if future._state == _PENDING]
    deadline = None if timeout is None else time.monotonic() + timeout
    channels = {id(future._channel): future._channel for future in pending}
    waker = of_this_thread()
    poller = select.poll()
    poller.register(waker.fileno(), select.POLLIN)
    listening: list[Channel] = []
    try:
        for channel in channels.values():
            poller.register(channel.listen(waker), select.POLLIN)
            listening.append(channel)
        while True:
            waker.clear()
            for channel in listening:
                channel.look()
            if any(future._state != _PENDING for future in pending):
                return True
            left = listening[0]._settings.poll_slice if listening else 0.0
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return False
            poller.poll(left * 1000)
    finally:
        for channel in listening:
            channel.unlisten(waker)


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
        done = {future for future in everything if future._state != _PENDING}
        failed = any(future._state == _FAILED for future in done)
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
        done = [future for future in left if future._state != _PENDING]
        yield from done
        left = [future for future in left if future not in set(done)] if done else left
        if done or not left:
            continue
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not wait_any(left, remaining):
            raise TimeoutError(f"{len(left)} of {n_all} calls have not ended within {timeout} s")


def get(futures: Any, timeout: float | None = None) -> Any:
    """Return the result of a future, or the results of a list of futures in its order; raises like `Future.result`."""
    if isinstance(futures, Future):
        return futures.result(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    return [future.result(None if deadline is None else max(0.0, deadline - time.monotonic())) for future in futures]


class _Reader:
    """One daemon thread, begun on first use, that reads the channels whose futures have callbacks, and calls them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _channels, _calls and the start of the thread
        self._channels: list[Channel] = []
        self._calls: list[tuple[Callable[[Future], object], Future]] = []
        self._waker: Waker | None = None

    def watch(self, channel: Channel) -> None:
        """Read a channel until nothing of it is pending."""
        with self._lock:
            if channel not in self._channels:
                self._channels.append(channel)
        self._wake()

    def call(self, callback: Callable[[Future], object], future: Future) -> None:
        """Call back soon, outside all locks."""
        with self._lock:
            self._calls.append((callback, future))
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._waker is None:
                self._waker = Waker()
                threading.Thread(target=self._run, name="parl_lite-callbacks", daemon=True).start()
        self._waker.wake()

    def _run(self) -> None:
        assert self._waker is not None
        while True:
            self._make_calls()
            with self._lock:
                channels = list(self._channels)
            pending = [future for channel in channels for future in list(channel._pending.values())]
            with self._lock:
                busy = {id(future._channel) for future in pending}
                self._channels = [c for c in self._channels if id(c) in busy or c not in channels]
            self._wait(channels)

    def _make_calls(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for callback, future in calls:
            try:
                callback(future)
            except Exception:
                import logging

                logging.getLogger("parl_lite").exception("a done-callback of %r raised", future)

    def _wait(self, channels: list[Channel]) -> None:
        assert self._waker is not None
        poller = select.poll()
        poller.register(self._waker.fileno(), select.POLLIN)
        for channel in channels:
            poller.register(channel.listen(self._waker), select.POLLIN)
        try:
            self._waker.clear()
            for channel in channels:
                channel.look()
            if not self._calls:
                poller.poll(100 if channels else None)
        finally:
            for channel in channels:
                channel.unlisten(self._waker)


_reader = _Reader()

__all__ = ["Channel", "Future", "RemoteError", "as_completed", "wait", "wait_any"]
