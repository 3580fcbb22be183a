"""Where a job's requests come in and its answers go out: the ROUTER, and lanes on this machine. Knows frames, no requests.

Each handle has its place at the ROUTER, and may have a lane beside it (line.py is its end, lanes.py tells how the order
is kept). Nothing here ever waits for a handle: what a full lane does not take goes through the ROUTER.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

import zmq

from parl_lite import frames, lanes
from parl_lite.frames import HEADER
from parl_lite.lanes import DETOUR, Eager, Ended, Entrance, Lane
from parl_lite.sockets import receive_body, send_body, send_frame

_DONTWAIT = int(zmq.DONTWAIT)  # plain numbers: an enum's operators would cost a microsecond each on the hot path
_SNDMORE = int(zmq.SNDMORE)
_ALL = sys.maxsize

Arrived = Callable[[bytes, bytes, memoryview | None], object]
"""Takes in a message: of which handle, its first frame, and its payload if that came apart."""


def files_of(folder: str, job: str) -> tuple[str, str]:
    """Return where a job can be reached on its machine: the file of its ROUTER, and the one at which lanes begin."""
    return os.path.join(folder, f"j{job}"), os.path.join(folder, f"l{job}")


def _dropped(peer: bytes, frame: bytes, body: memoryview | None) -> None:
    """Nobody has said yet who takes messages in."""


class _Branch:
    """A handle's lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.peer: bytes | None = None
        """Whose it is; not known before its first message."""
        self.carries = False
        """Whether answers go by it."""
        self.on_detour = False
        """Whether its next message comes through the ROUTER."""


class Doors:
    """All ways into one job."""

    def __init__(self, router: zmq.Socket[bytes], entrance_path: str) -> None:
        """Take over a socket that is bound. Lanes will begin at the file, which is made when the first is wanted."""
        self.arrived: Arrived = _dropped
        self._router = router
        self._router_descriptor = int(router.get(zmq.FD))
        self._router_patience = int(router.get(zmq.RCVTIMEO)) / 1000
        self._router_may_have_more = True
        """Whether its descriptor, which is edge-triggered, may be silent though there is something to read."""
        self._entrance_path = entrance_path
        self._entrance: Entrance | None = None
        self._epoll: select.epoll | None = None
        self._tokens: dict[bytes, bytes] = {}
        """Handles that may enter, by their tokens."""
        self._branches: dict[int, _Branch] = {}
        self._by_peer: dict[bytes, _Branch] = {}
        self._latest: _Branch | None = None
        self._eager = Eager()

    # --- receive -------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Take in what comes first, after `seconds` at the latest."""
        if self._epoll is None:
            self._wait_at_router(seconds)
        elif not (self._take_latest() or (self._router_may_have_more and self._take_from_router(1))):
            for descriptor, _ in self._eager.look(self._poll_now) or self._epoll.poll(seconds):
                self._take_from(descriptor, 1)

    def take_all(self) -> None:
        """Take in all that has come."""
        if self._epoll is None or self._router_may_have_more:
            self._take_from_router(_ALL)
        if self._epoll is not None:
            for descriptor, _ in self._poll_now():
                self._take_from(descriptor, _ALL)

    def _poll_now(self) -> list[tuple[int, int]]:
        return [] if self._epoll is None else self._epoll.poll(0)

    def _wait_at_router(self, seconds: float) -> None:
        # one message, since another look costs as much as a call; and not a poll of ZeroMQ, which counts whole milliseconds
        if seconds >= self._router_patience:
            self._take_from_router(1, 0)
        elif not self._take_from_router(1) and select.select([self._router_descriptor], [], [], seconds)[0]:
            self._take_from_router(1)

    def _take_latest(self) -> bool:
        """Take one message of the lane that had the last: who sends many spares the job from looking at all others."""
        return self._latest is not None and self._take_from_branch(self._latest, 1)

    def _take_from(self, descriptor: int, most: int) -> None:
        if descriptor == self._router_descriptor:
            self._take_from_router(most)
        elif (branch := self._branches.get(descriptor)) is not None:
            self._take_from_branch(branch, most)
        else:
            self._let_in()

    def _take_from_router(self, most: int, flags: int = _DONTWAIT) -> bool:
        """Take in up to so many messages; return whether there were any. Without flags, wait as long as ZeroMQ does."""
        self._router_may_have_more = True
        for i in range(most):
            try:
                peer = self._router.recv(flags)
            except zmq.Again:
                self._router_may_have_more = False
                return i > 0
            frame = self._router.recv()
            is_large = len(frame) >= HEADER.size and frame[1] & frames.LARGE
            self._came_by_router(peer, frame, receive_body(self._router) if is_large else None)
        return True

    def _came_by_router(self, peer: bytes, frame: bytes, body: memoryview | None) -> None:
        """Take in a message after all that its handle sent before by its lane."""
        branch = self._by_peer.get(peer)
        if branch is not None and not branch.on_detour:
            self._take_from_branch(branch, _ALL)
        self.arrived(peer, frame, body)
        if branch is not None and branch.on_detour:
            branch.on_detour = False
            self._watch(branch)

    def _take_from_branch(self, branch: _Branch, most: int) -> bool:
        """Take in up to so many messages; return whether there were any, and the lane goes on."""
        for i in range(most):
            try:
                message = branch.lane.receive_now()
            except Ended:
                self._close(branch)
                return False
            if message is None:
                return i > 0
            if message == DETOUR:
                self._begin_detour(branch)
                return False
            if branch.peer is None:
                self._introduced(branch, message)
                return False
            branch.carries = True
            self._latest = branch
            self.arrived(branch.peer, message, None)
        return True

    # --- send ----------------------------------------------------------------------------------------------

    def send(self, peer: bytes, head: bytes, body: bytes | None = None) -> bool:
        """Send a message to a handle, in order; return whether the handle is still there."""
        branch = self._by_peer.get(peer)
        if branch is not None and branch.carries:
            is_small = body is None and len(head) <= lanes.LARGEST
            branch.carries = branch.lane.send(head if is_small else DETOUR)
            if branch.carries and is_small:
                return True
            if not branch.carries:
                branch.lane.give_up()
        return self._send_by_router(peer, head, body)

    def _send_by_router(self, peer: bytes, head: bytes, body: bytes | None) -> bool:
        self._router_may_have_more = True
        try:
            send_frame(self._router, peer, _SNDMORE)
            if body is None:
                send_frame(self._router, head)
            else:
                send_frame(self._router, head, _SNDMORE)
                send_body(self._router, body)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def is_there(self, peer: bytes) -> bool:
        """Return whether a handle is still there; it gets an empty message through the ROUTER."""
        there = self._send_by_router(peer, b"", None)
        if not there:
            self._tokens = {token: entering for token, entering in self._tokens.items() if entering != peer}
        return there

    # --- lanes ---------------------------------------------------------------------------------------------

    def offer_lane(self, peer: bytes) -> tuple[str, bytes] | None:
        """Return where a handle may begin a lane, and by what token; None where there are none."""
        if self._entrance is None and not self._open_entrance():
            return None
        token = lanes.new_token()
        self._tokens[token] = peer
        return self._entrance_path, token

    def _open_entrance(self) -> bool:
        try:
            self._entrance = Entrance(self._entrance_path)
            self._epoll = select.epoll()
        except (OSError, AttributeError):
            return False
        self._epoll.register(self._entrance.fileno(), select.EPOLLIN)
        self._epoll.register(self._router_descriptor, select.EPOLLIN)
        return True

    def _let_in(self) -> None:
        """Accept lanes; if there can be no more, none is ever begun again."""
        try:
            while self._entrance is not None and (lane := self._entrance.accept()) is not None:
                branch = self._branches[lane.fileno()] = _Branch(lane)
                self._watch(branch)
        except OSError:
            if self._entrance is not None:
                self._entrance.close()
            self._entrance = None

    def _introduced(self, branch: _Branch, token: bytes) -> None:
        """Know whose a lane is, and tell its handle that it may be used."""
        branch.peer = self._tokens.pop(token, None)
        if branch.peer is None or not branch.lane.send(token):
            self._close(branch)
        else:
            self._by_peer[branch.peer] = branch

    def _begin_detour(self, branch: _Branch) -> None:
        branch.on_detour = True
        self._latest = None if branch is self._latest else self._latest
        if self._epoll is not None:
            self._epoll.unregister(branch.lane.fileno())

    def _watch(self, branch: _Branch) -> None:
        if self._epoll is not None:
            self._epoll.register(branch.lane.fileno(), select.EPOLLIN)

    def _close(self, branch: _Branch) -> None:
        self._branches.pop(branch.lane.fileno(), None)
        if branch.peer is not None:
            self._by_peer.pop(branch.peer, None)
        if branch is self._latest:
            self._latest = None
        branch.lane.close()  # which ends that it is watched

    def close(self) -> None:
        """Close all but the ROUTER, which others made."""
        for branch in list(self._branches.values()):
            self._close(branch)
        for each in (self._entrance, self._epoll):
            if each is not None:
                each.close()
        self._entrance = self._epoll = None
