"""What connects a handle to its job: a ZeroMQ socket, and on one machine a lane beside it. Knows messages, no calls.

    ZeroMQ ──offered, nothing under way──▶ the lane ──full, or ended──▶ ZeroMQ
Both directions go this way, each when its sender says so; lanes.py tells how the order is kept. Not thread-safe.
"""

from __future__ import annotations

import zmq

from parl_lite import lanes
from parl_lite.frames import HEADER
from parl_lite.lanes import DETOUR, Ended, Lane
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings
from parl_lite.sockets import connect, receive_body, send_body, send_frame, watch_connection

_DONTWAIT = int(zmq.DONTWAIT)  # plain numbers: an enum's operators would cost a microsecond each on the hot path
_SNDMORE = int(zmq.SNDMORE)


class Line:
    """The way of one handle's messages."""

    def __init__(self, socket: zmq.Socket[bytes], settings: Settings) -> None:
        """Take over a DEALER that is not connected yet, so that not even a refusal at once goes unseen."""
        self._socket = socket
        self._patience = settings.poll_slice
        self._monitor = watch_connection(socket)
        self._zmq_descriptor = int(socket.get(zmq.FD))
        self.offered: Lane | None = None
        """A lane that may be taken as soon as nothing is under way."""
        self._out: Lane | None = None
        self._in: Lane | None = None
        self._on_detour = False
        self.descriptor = self._zmq_descriptor
        """What to poll for reading. ZeroMQ's is edge-triggered: whoever may have consumed the edge takes all there is."""

    def connect(self, address: str, key: ClusterKey | None) -> None:
        """Connect to the job, once."""
        connect(self._socket, address, key)

    @property
    def address(self) -> str:
        """Where ZeroMQ is connected to."""
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    # --- the lane ------------------------------------------------------------------------------------------

    def offer_lane(self, path: str, token: bytes) -> None:
        """Make a lane to where the job listens, if that can be done."""
        if self._in is None and self.offered is None:
            self.offered = lanes.enter(path, token, self._patience)

    def take_lane(self) -> None:
        """Use the lane that is offered, once the job is ready for it; nothing may be under way in either direction."""
        lane = self.offered
        assert lane is not None
        try:
            if lane.receive_now() is None:
                return
            self._out = self._in = lane
        except Ended:
            lane.close()
        self.offered = None
        self._look_at_lane()

    @property
    def has_lane(self) -> bool:
        """Whether messages go by a lane."""
        return self._out is not None

    def _leave_lane(self) -> None:
        if self._out is not None:
            self._out.give_up()
        self._out = None

    def _end_of_lane(self) -> None:
        self._leave_lane()
        if self._in is not None:
            self._in.close()
        self._in = None
        self._look_at_lane()

    def _look_at_lane(self) -> None:
        lane = None if self._on_detour else self._in
        self.descriptor = self._zmq_descriptor if lane is None else lane.fileno()

    # --- messages ------------------------------------------------------------------------------------------

    def send(self, head: bytes, body: bytes | None = None) -> None:
        """Send one message; while the connection is on its way ZeroMQ keeps it."""
        if self._out is not None and body is None and len(head) <= lanes.LARGEST:
            if self._out.send(head):
                return
            self._leave_lane()
        try:
            if self._out is not None and not self._out.send(DETOUR):
                self._leave_lane()
            self._send_by_zmq(head, body)
        except BaseException:  # such as Ctrl-C: a place is held for what may never come, so the next must come that way, too
            self._leave_lane()
            raise

    def _send_by_zmq(self, head: bytes, body: bytes | None) -> None:
        if body is None:
            send_frame(self._socket, head)
        else:
            send_frame(self._socket, head, _SNDMORE)
            send_body(self._socket, body)

    def receive(self, *, now: bool = False) -> bytes | None:
        """Return the next message; None if none came within a slice, or if there is none now."""
        if self._in is not None and not self._on_detour:
            try:
                message = self._in.receive_now() if now else self._in.receive_soon() or self._in.receive()
            except Ended:
                self._end_of_lane()
                return self.receive(now=now)
            if message != DETOUR:
                return message
            self._turn(onto_detour=True)
        try:
            message = self._socket.recv(_DONTWAIT if now else 0)
        except zmq.Again:
            return None
        if self._on_detour and len(message) >= HEADER.size:  # less is a probe, which no place was held for
            self._turn(onto_detour=False)
        return message

    def receive_body(self) -> memoryview:
        """Return the payload that follows a message."""
        return receive_body(self._socket)

    def _turn(self, *, onto_detour: bool) -> None:
        self._on_detour = onto_detour
        self._look_at_lane()

    # --- the end -------------------------------------------------------------------------------------------

    def is_broken(self) -> bool:
        """Return whether the connection broke, or was refused; true once for each time."""
        return self._socket.closed or bool(self._monitor.poll(0))

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return bool(self._socket.closed)

    def close(self) -> None:
        """Close all of it; a second call does nothing."""
        if self._socket.closed:
            return
        for lane in (self.offered, self._in):
            if lane is not None:
                lane.close()
        self.offered = self._out = self._in = None
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
