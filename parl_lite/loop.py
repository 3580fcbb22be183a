"""The one poll loop: turns what comes in into events for a machine, and performs what the machine returns. Knows no protocol.

socket, monitor, watched descriptors, posted events, deadline
      │ events
      ▼
machine.handle(event, now) ──actions──▶ Send / Say / Finish here, all others to `perform`

A ROUTER's monitor tells that some connection broke, not whose. So all peers are probed then, with an empty message, and some
times more, for the socket may learn it after its monitor. While nothing breaks, an idle master is idle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from parl_lite import wire
from parl_lite.machine import (
    MASTER,
    Babbled,
    Connected,
    Disconnected,
    Finish,
    HandshakeFailed,
    Machine,
    PeerLost,
    Received,
    Say,
    Send,
    Woke,
)
from parl_lite.settings import Settings
from parl_lite.waker import Waker

logger = logging.getLogger("parl_lite")

_HANDSHAKE_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_MESSAGES_A_TURN = 256
"""So many messages are taken in before the rest gets its turn."""
_PROBES_A_BREAK = 4
"""So often peers are probed, `probe_interval` apart, when a connection broke."""
_DONTWAIT = int(zmq.DONTWAIT)  # plain numbers: an enum's operators would cost a microsecond each
_SNDMORE = int(zmq.SNDMORE | zmq.DONTWAIT)


class Loop:
    """Runs one machine on one control socket: a ROUTER (the master's) or a DEALER (towards the master)."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        machine: Machine[Any, Any],
        perform: Callable[[Any], None],
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._machine = machine
        self._perform = perform
        self._settings = settings
        self._clock = clock
        self._is_router = socket.get(zmq.TYPE) == zmq.ROUTER
        self._posted: deque[Any] = deque()
        self._waker = Waker()
        self._watched: dict[int, Callable[[], Iterable[Any]]] = {}
        self._finish: Finish | None = None
        self._last_probe = 0.0
        self._probes_due = _PROBES_A_BREAK
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._waker.fileno(), zmq.POLLIN)
        of_dealer = zmq.EVENT_HANDSHAKE_SUCCEEDED | _HANDSHAKE_FAILED
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | (0 if self._is_router else of_dealer))
        self._poller.register(self._monitor, zmq.POLLIN)

    # --- for other threads ---------------------------------------------------------------------------------

    def post(self, event: Any) -> None:
        """Hand in an event from any thread."""
        self._posted.append(event)
        self._waker.wake()

    # --- for the thread that runs it -----------------------------------------------------------------------

    def watch(self, fd: int, callback: Callable[[], Iterable[Any]]) -> None:
        """Call back whenever the descriptor is readable; the callback returns events."""
        self._watched[fd] = callback
        self._poller.register(fd, zmq.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Look no more at a descriptor (before it is closed)."""
        if self._watched.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def run(self) -> Finish:
        """Run until the machine says Finish; returns it."""
        while self._finish is None:
            readable = {source for source, _ in self._poller.poll(self._milliseconds_left())}
            self._handle_all(self._posted_events(readable))
            self._handle_all(self._watched_events(readable))
            self._handle_all(self._connection_events(readable))
            self._handle_all(self._message_events(readable))
            self._handle_all(self._timed_events())
        return self._finish

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket and what belongs to it; messages under way have `linger_ms` to leave."""
        if not self._socket.closed:
            self._socket.disable_monitor()
        self._monitor.close(0)  # an open monitor would hang the context's end
        self._socket.close(linger_ms)
        self._waker.close()

    # --- events --------------------------------------------------------------------------------------------

    def _posted_events(self, readable: set[Any]) -> Iterable[Any]:
        if self._waker.fileno() in readable:
            self._waker.clear()
        while self._posted:
            yield self._posted.popleft()

    def _watched_events(self, readable: set[Any]) -> Iterable[Any]:
        for fd in readable:
            callback = self._watched.get(fd) if isinstance(fd, int) else None
            if callback is not None:
                yield from callback()

    def _connection_events(self, readable: set[Any]) -> Iterable[Any]:
        if self._monitor not in readable:
            return
        while self._monitor.poll(0):
            kind = recv_monitor_message(self._monitor)["event"]
            if self._is_router:
                self._probes_due = _PROBES_A_BREAK
            elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                yield Connected()
            elif kind == zmq.EVENT_DISCONNECTED:
                yield Disconnected()
            elif kind & _HANDSHAKE_FAILED:
                yield HandshakeFailed(final=kind != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)

    def _message_events(self, readable: set[Any]) -> Iterable[Any]:
        if self._socket not in readable:
            return
        for _ in range(_MESSAGES_A_TURN):
            try:
                frames = self._receive()
            except zmq.Again:
                return
            peer = frames.pop(0) if self._is_router else MASTER
            if frames == [b""]:
                continue  # a probe: its arrival is all it says
            try:
                yield Received(peer, wire.decode(frames, self._settings.max_control_message))
            except wire.WireError as error:
                yield Babbled(peer, str(error))

    def _receive(self) -> list[bytes]:
        """Return the frames of one message; a frame that is not copied says at no cost whether more follow."""
        frame = self._socket.recv(_DONTWAIT, copy=False)
        frames = [frame.bytes]
        while frame.more:
            frame = self._socket.recv(_DONTWAIT, copy=False)
            frames.append(frame.bytes)
        return frames

    def _timed_events(self) -> Iterable[Any]:
        now = self._clock()
        if self._is_router and now >= self._next_probe():
            self._last_probe = now
            self._probes_due = max(0, self._probes_due - 1)
            yield from self._lost_peers()
        deadline = self._machine.deadline()
        if deadline is not None and now >= deadline:
            yield Woke()

    def _next_probe(self) -> float:
        """Return when to look for broken connections: soon if there is one, now and then in any case."""
        return self._last_probe + (self._settings.probe_interval if self._probes_due else self._settings.liveness_timeout)

    def _lost_peers(self) -> Iterable[PeerLost]:
        for peer in list(self._machine.peers()):
            if not self._deliver([peer, b""]):
                yield PeerLost(peer)

    # --- actions -------------------------------------------------------------------------------------------

    def _handle_all(self, events: Iterable[Any]) -> None:
        for event in events:
            for action in self._machine.handle(event, self._clock()):
                self._do(action)

    def _do(self, action: Any) -> None:
        match action:
            case Send(peer, message):
                frames = wire.encode(message)
                if not self._deliver([peer, *frames] if self._is_router else frames) and self._is_router:
                    self._posted.append(PeerLost(peer))
                    self._waker.wake()
            case Say(text):
                logger.info(text)
            case Finish():
                self._finish = action
            case _:
                self._perform(action)

    def _deliver(self, frames: list[bytes]) -> bool:
        """Send, and return whether the peer's connection stood."""
        try:
            self._send(frames)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            if self._is_router or not int(self._socket.get(zmq.EVENTS)) & zmq.POLLOUT:
                return False
            # the connection has just been made, and sending looked too soon after the last time to see it
            self._send(frames)
        return True

    def _send(self, frames: list[bytes]) -> None:
        for frame in frames[:-1]:
            self._socket.send(frame, _SNDMORE)
        self._socket.send(frames[-1], _DONTWAIT)

    def _milliseconds_left(self) -> int | None:
        if self._posted:
            return 0
        times = [self._next_probe()] if self._is_router else []
        deadline = self._machine.deadline()
        if deadline is not None:
            times.append(deadline)
        return max(0, int((min(times) - self._clock()) * 1000) + 1) if times else None


def run_in_thread(loop: Loop, name: str) -> threading.Thread:
    """Run a loop in a daemon thread."""
    thread = threading.Thread(target=loop.run, name=name, daemon=True)
    thread.start()
    return thread
