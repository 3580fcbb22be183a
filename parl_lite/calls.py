"""The data path: the calls of one handle to one actor. Knows futures and payloads, no socket, cluster or class of the user.

No thread stands between a caller and the line: who waits for a result reads the line, and hands out what else arrives.

    one thread        receive() with a time-out of `poll_slice`, lock held: as fast as the bare socket
    several threads   each polls the line's descriptor and its own waker, without the lock; who finds messages takes
                      them all under the lock and wakes the other listeners
    wait, as_completed, time-outs   the same as several threads, over many lines (futures.py)

A line's descriptor may be edge-triggered: every access that may consume the edge takes all messages before it lets go of
the lock. The line tells that its connection broke, so a lost job is seen here without any message; the reason follows on
the control path, and is waited for `loss_patience`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from parl_lite import frames, lending, remote_errors
from parl_lite.callbacks import reader
from parl_lite.errors import ActorLostError, NotConnectedError, SerializationError
from parl_lite.frames import HEADER
from parl_lite.futures import CANCELLED, DONE, FAILED, PENDING, Future, wait_any
from parl_lite.lending import Lender
from parl_lite.line import Line
from parl_lite.payload import Decoder, Encoder
from parl_lite.refs import Packer, Ref
from parl_lite.settings import Settings
from parl_lite.waker import Waker

_PROBE = (0, 0, 0, 0)
"""An empty frame, by which a job looks whether this handle is still there, answers no request: they count from 1."""

_forks = 0
"""How often this process is the child of a fork since it was loaded: sockets of before must not be touched."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class MethodMarker:
    """What reading an attribute gives when it is a method of the remote object."""


METHOD = MethodMarker()


class Channel:
    """The connection of one handle to one job. Calls are sent, and run, in the order of `request`."""

    def __init__(
        self,
        line: Line,
        label: str,
        settings: Settings,
        *,
        trusted: bool = True,
        packer: Packer | None = None,
        explain_loss: Callable[[], ActorLostError] | None = None,
    ) -> None:
        """Take over a line.

        Args:
            label: "Actor host pid", for messages.
            trusted: whether pickled results are accepted.
            packer: how Refs travel to the job; by default, as to one of this machine.
            explain_loss: makes the error when the connection broke and the control path gave no reason.
        """
        self.label = label
        self.loss: ActorLostError | None = None
        self._line = line
        self.poll_slice = settings.poll_slice
        self._settings = settings
        self._trusted = trusted
        self._explain_loss = explain_loss  # not a method of ours: a cycle would keep the sockets open
        self._packer = packer or Packer()
        self._packer.lender = self._lent = Lender()
        weakref.finalize(self, self._lent.close).atexit = False
        self._encoder = Encoder(self._packer.reducers)
        self._decoder = Decoder(allow_pickle=trusted)
        self._lender: Lender | None = None
        """Who lends memory for large values, once the job has said that it can open it."""
        self._lock = threading.Lock()  # guards everything below, and the socket; taken by whoever calls or waits
        self._contended = False
        self._pending: dict[int, Future] = {}
        self._last_request = 0
        self._n_answered = 0
        self._kept: dict[int, list[Ref]] = {}
        """Refs on their way, by request."""
        self._offers: Mapping[int, object] = {}
        self._listeners: list[Waker] = []
        self._down_since: float | None = None
        self._forks = _forks
        # not __del__: in a garbage cycle the line's own finalizers could run first, and warn
        self._close = weakref.finalize(self, _close_line, line, os.getpid())
        self._close.atexit = False

    def introduce(self) -> None:
        """Offer to share memory: from the job's answer on large values go that way, if it can open ours."""
        self.request(frames.SHARE, "", lending.proof() if self._packer.local else None, "a place")

    # --- calling -------------------------------------------------------------------------------------------

    def request(self, kind: int, name: str, value: Any, what: str) -> Future:
        """Send a request; its value is fixed now. Raises SerializationError, naming `what`, before anything is sent."""
        with self._entered():
            return self._begin(kind, name.encode(), value, what)

    def call(self, name: bytes, value: Any, what: str) -> Any:
        """Call a method and return its result, or a future that has or will have it.

        The short way of `request(...).result()` for the usual case: nothing else is under way, so the next message is the
        answer, and needs no future. A future is returned for everything unusual: an error, a slow answer, other threads.
        """
        with self._entered():
            if self._pending or self._contended or self._listeners or self.loss is not None:
                return self._begin(frames.CALL, name, value, what)
            request = self._transmit(frames.CALL, name, value, what)
            frame = self._line.receive()
            if frame is None:
                return self._expect(request)
            kind, elsewhere, _, answered = HEADER.unpack_from(frame) if len(frame) >= HEADER.size else _PROBE
            if answered == request and not (elsewhere or self._offers or self._kept):
                state, value = self._outcome(kind, memoryview(frame)[HEADER.size :])
                self._n_answered += 1
                if state == DONE:
                    return value
                future = Future(self)
                future.settle(state, value)
            else:
                future = self._expect(request)
                self._deliver(frame)
        return future

    def _begin(self, kind: int, name: bytes, value: Any, what: str) -> Future:
        if self.loss is not None:
            raise self.loss.with_traceback(None)
        future = self._expect(self._transmit(kind, name, value, what))
        if self._listeners:
            self._take_all()  # sending may have consumed the edge that a listener polls for
        return future

    def _expect(self, request: int) -> Future:
        """Return the future of a request that was sent."""
        future = self._pending[request] = Future(self, request)
        return future

    def _transmit(self, kind: int, name: bytes, value: Any, what: str) -> int:
        """Send a request and return its number; the lock is held."""
        if self._line.offered is not None and self._last_request == self._n_answered and not self._listeners:
            self._line.take_lane()
        try:
            parts = self._encoder.encode_parts(value, what=what)
        except SerializationError:
            self._packer.discard()
            raise
        self._last_request = request = self._last_request + 1
        if self._packer.packed:
            self._kept[request] = self._packer.take()
        try:
            self._line.send(*frames.build(kind, request, name, parts, self._lender))
        except BaseException:
            self._encoder.reset()  # the peer has not heard of what it would have learned
            raise
        return request

    def cancel(self, future: Future) -> bool:
        """Ask the job to skip a call; the future is cancelled at once."""
        with self._entered():
            if self._pending.pop(future._request, None) is None:
                return future._state == CANCELLED
            future.settle(CANCELLED, None)
            self._line.send(*frames.build(frames.CANCEL, future._request, b"", ()))
            self._after(future)
            return True

    def is_busy(self) -> bool:
        """Return whether an answer is awaited."""
        return bool(self._pending)

    def is_oldest(self, future: Future) -> bool:
        """Return whether no earlier call of this handle waits for its answer."""
        return next(iter(self._pending), None) == future._request

    def close(self) -> None:
        """Close the socket; what is under way fails."""
        with self._entered():
            self.loss = self.loss or ActorLostError(f"the handle of {self.label} was destroyed.")
            self._fail_pending()
            self._close()

    def lose(self, loss: ActorLostError) -> None:
        """The control path says that the job is gone: whoever waits learns it after the results that still came."""
        if self.loss is None:
            self.loss = loss
        for listener in list(self._listeners):
            listener.wake()

    # --- waiting -------------------------------------------------------------------------------------------

    def wait_for(self, future: Future, timeout: float | None) -> None:
        """Return when the future is settled; raises TimeoutError."""
        if timeout is None:
            while not self._contended and future._state == PENDING:
                with self._entered():
                    self._receive_one()
        if future._state == PENDING and not wait_any([future], timeout):
            raise TimeoutError(f"no result from {self.label} within {timeout} s; the call goes on, ask again")

    def look(self) -> None:
        """Take what has arrived, without waiting."""
        with self._entered():
            if not self._line.closed:
                self._take_all()
            self._look_for_loss()

    def call_when_done(self, future: Future, callback: Callable[[Future], object]) -> bool:
        """Register a callback; False when the future is settled already."""
        with self._entered():
            if future._state != PENDING:
                return False
            future._callbacks = [*(future._callbacks or ()), callback]
        reader.watch(self)
        return True

    def _receive_one(self) -> None:
        """Wait up to a slice for one message, as the only thread; the lock is held meanwhile."""
        if self._line.closed:
            self._fail_pending()
            return
        frame = self._line.receive()
        if frame is None:
            self._take_all()
            self._look_for_loss()
            return
        self._deliver(frame)
        if self._listeners:  # one came while this thread was blocked, and the edge it polls for may be consumed
            self._take_all()
            self._wake_listeners()

    # --- under the lock ------------------------------------------------------------------------------------

    def _entered(self) -> threading.Lock:
        """Return the lock, to be entered; note when several threads want it, for then nobody may block inside."""
        if self._lock.locked():
            self._contended = True
        if _forks != self._forks:
            raise NotConnectedError("an actor handle does not survive fork(): connect and create actors in the child.")
        return self._lock

    def _take_all(self) -> None:
        descriptor, delivered = self._line.descriptor, False
        while (frame := self._line.receive(now=True)) is not None:
            self._deliver(frame)
            delivered = True
        if delivered or self._line.descriptor != descriptor:  # listeners poll the old one
            self._wake_listeners()

    def _deliver(self, frame: bytes) -> None:
        """Settle the future that a message answers."""
        if len(frame) < HEADER.size:
            return  # a probe: the job looks whether this handle is still there
        kind, elsewhere, _, request = HEADER.unpack_from(frame)
        self._n_answered += 1
        payload = self._payload(frame) if elsewhere or self._offers else memoryview(frame)[HEADER.size :]
        if payload is None:
            return
        state, value = self._outcome(kind, payload)
        if self._kept:
            self._kept.pop(request, None)
        if elsewhere & frames.KEPT:
            self._line.send(frames.build_seen(request))
        future = self._pending.pop(request, None)
        if future is not None:
            future.settle(state, value)
            if future._callbacks:
                self._after(future)

    def _payload(self, frame: bytes) -> memoryview | None:
        """Return the payload of an answer, wherever it is; None if that place was given up."""
        _, flags, n_name, request = HEADER.unpack_from(frame)
        begin = HEADER.size + n_name
        if flags & frames.SHARED:
            return self._shared_payload(request, frames.SIZE.unpack_from(frame, begin)[0])
        payload = self._line.receive_body() if flags & frames.LARGE else memoryview(frame)[begin:]
        if self._lender is not None:
            self._lender.answered(request, frame[HEADER.size : begin], len(payload))
        return payload

    def _shared_payload(self, request: int, size: int) -> memoryview | None:
        """Return the answer that was written to our memory; of a job that is not trusted a copy, which it cannot change."""
        payload = None if self._lender is None else self._lender.received(request, size)
        return payload if payload is None or self._trusted else memoryview(bytearray(payload))

    def _outcome(self, kind: int, payload: memoryview) -> tuple[int, Any]:
        try:
            if kind == frames.RESULT:
                return DONE, self._decoder.decode(payload)
            if kind == frames.SHARES:
                self._introduced(*self._decoder.decode(payload))
                return DONE, None
            if kind == frames.ERROR:
                packed: Any = self._decoder.decode(payload)
                return FAILED, remote_errors.unpack(packed, self.label, self._trusted)
        except SerializationError as error:
            error.args = (f"the result of {self.label} cannot be read here: {error}",)
            return FAILED, error
        if kind == frames.CANCELLED:
            return CANCELLED, None
        if kind == frames.UNREADABLE:
            return FAILED, self._unreadable()
        return DONE, METHOD if kind == frames.METHOD else kind

    @property
    def stores(self) -> tuple[str, ...]:
        """Where the job's worker keeps objects, once the job has said so."""
        return self._packer.stores

    def _introduced(self, shares: bool, stores: tuple[str, ...], lane: tuple[str, bytes] | None) -> None:
        """Take note of whether the job can open our memory, where its worker keeps objects, and where a lane begins."""
        self._packer.stores, self._packer.local = stores, shares
        if lane is not None:
            self._line.offer_lane(*lane)
        if shares:
            self._lender, self._offers = self._lent, self._lent.offers

    def _unreadable(self) -> SerializationError:
        """Go back to the socket: the job could not open a segment."""
        self._encoder.reset()
        if self._lender is not None:
            self._lender.stop()
        return SerializationError(f"the arguments did not reach {self.label}, which can open no more files: call again.")

    def _after(self, future: Future) -> None:
        callbacks, future._callbacks = future._callbacks, None
        for callback in callbacks or ():
            reader.call(callback, future)

    def _look_for_loss(self) -> None:
        """Fail what is under way if the job is gone; called whenever a wait found nothing."""
        if self.loss is None and (self._down_since is not None or self._line.is_broken()):
            now = time.monotonic()
            if self._down_since is None:
                self._down_since = now
            if now - self._down_since >= self._settings.loss_patience:
                self.loss = (self._explain_loss or self._unexplained)()
        if self.loss is not None:
            self._fail_pending()

    def _fail_pending(self) -> None:
        self._lent.close()
        self._lender, self._offers = None, {}
        self._kept.clear()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            future.settle(FAILED, self.loss)
            self._after(future)
        if pending:
            self._wake_listeners()

    def _wake_listeners(self) -> None:
        for listener in self._listeners:
            listener.wake()

    def _unexplained(self) -> ActorLostError:
        return ActorLostError(f"{self.label} is lost: the connection to its process broke.")

    # --- listening from several threads --------------------------------------------------------------------

    def listen(self, waker: Waker) -> None:
        """Wake `waker` whenever another thread settles futures."""
        with self._entered():
            self._listeners.append(waker)

    @property
    def descriptor(self) -> int:
        """What to poll for answers, after `look`."""
        return self._line.descriptor

    def unlisten(self, waker: Waker) -> None:
        """Wake it no more."""
        with self._entered():
            self._listeners.remove(waker)


def _close_line(line: Line, pid: int) -> None:
    if os.getpid() == pid:
        line.close()
