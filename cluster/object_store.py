"""What jobs of this machine share and whose owners are elsewhere: the worker's store of put objects. See parl_lite/stores.py.

Bytes arrive in pieces, so that the worker's loop is never held up for long. An object lives until every owner has dropped it
or is gone; jobs that have mapped it keep it as long as they need.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import zmq

from parl_lite import hostos, shm
from parl_lite.frames import PLACE
from parl_lite.loop import Loop
from parl_lite.shm import Segment
from parl_lite.stores import DROP, FIND, HAVE, KEEP, NONE, NUMBER, PIECE, SEND
from parl_lite.waker import Waker

logger = logging.getLogger("parl_lite")

_IDENTITY_SIZE = 16
_LOOKS = (0.05, 1.0, 5.0)
"""So long after a connection broke its owner is looked for: the news comes before the ROUTER knows it."""


@dataclass
class Stored:
    """One object, or as much of it as has come."""

    segment: Segment
    size: int
    sender: bytes
    """Who sends the bytes, or sent them."""
    n_received: int = 0
    owners: set[bytes] = field(default_factory=set)
    """Who wants it to be kept; those who asked while another sends wait until it is there."""

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return self.n_received == self.size


class ObjectStore:
    """Serves owners and jobs at one ROUTER, on the worker's loop."""

    def __init__(self, router: zmq.Socket[bytes], loop: Loop) -> None:
        self._router = router
        self._loop = loop
        self._objects: dict[bytes, Stored] = {}
        self._monitor = router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        loop.watch(int(router.get(zmq.FD)), self._receive)
        self._monitor.poll(0)  # its descriptor tells of news only after somebody has looked
        self._look_wish = Waker()
        loop.watch(int(self._monitor.get(zmq.FD)), self._somebody_left)
        loop.watch(self._look_wish.fileno(), self._look)

    def close(self) -> None:
        """Close the socket, and let go of everything."""
        for fd in (self._router.get(zmq.FD), self._monitor.get(zmq.FD), self._look_wish.fileno()):
            self._loop.unwatch(int(fd))
        self._look_wish.close()
        self._router.disable_monitor()
        self._monitor.close(0)
        self._router.close(0)
        for identity in list(self._objects):
            self._remove(identity)

    # --- events --------------------------------------------------------------------------------------------

    def _receive(self) -> Iterable[object]:
        while True:
            try:
                message = self._router.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return ()
            match message:
                case [owner, op, identity, size] if op == KEEP and len(identity) == _IDENTITY_SIZE and len(size) == NUMBER.size:
                    self._keep(owner, identity, NUMBER.unpack(size)[0])
                case [owner, op, identity, begin, data] if op == PIECE and len(begin) == NUMBER.size:
                    self._take_piece(owner, identity, NUMBER.unpack(begin)[0], data)
                case [owner, op, identity] if op == DROP:
                    self._drop(owner, identity)
                case [job, op, identity] if op == FIND:
                    self._answer(job, self._place_of(identity))

    def _somebody_left(self) -> Iterable[object]:
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
        for seconds in _LOOKS if self._objects else ():
            timer = threading.Timer(seconds, self._look_wish.wake)
            timer.daemon = True
            timer.start()
        return ()

    def _look(self) -> Iterable[object]:
        self._look_wish.clear()
        self._forget_the_dead()
        return ()

    def _forget_the_dead(self) -> None:
        """Let go of what only owners have kept whose connection is gone."""
        owners = {owner for stored in self._objects.values() for owner in stored.owners}
        for owner in owners:
            if not self._answer(owner, b""):
                self._left(owner)
        self._receive()  # sending may have consumed the sign that something has come

    # --- objects -------------------------------------------------------------------------------------------

    def _keep(self, owner: bytes, identity: bytes, size: int) -> None:
        stored = self._objects.get(identity)
        if stored is not None:
            stored.owners.add(owner)
            if stored.whole:
                self._answer(owner, HAVE)
            return
        segment = _room(size)
        if segment is None:
            self._answer(owner, NONE)
            return
        self._objects[identity] = Stored(segment, size, owner, owners={owner})
        self._answer(owner, SEND)

    def _take_piece(self, owner: bytes, identity: bytes, begin: int, data: bytes) -> None:
        stored = self._objects.get(identity)
        if stored is None or stored.sender != owner or begin != stored.n_received or begin + len(data) > stored.size:
            return
        stored.segment.data[begin : begin + len(data)] = data
        stored.n_received += len(data)
        if stored.whole:
            for waiting in stored.owners:
                self._answer(waiting, HAVE)

    def _place_of(self, identity: bytes) -> bytes:
        stored = self._objects.get(identity)
        return PLACE.pack(*stored.segment.place(stored.size)) if stored is not None and stored.whole else NONE

    def _left(self, owner: bytes) -> None:
        for identity in list(self._objects):
            self._drop(owner, identity)

    def _drop(self, owner: bytes, identity: bytes) -> None:
        stored = self._objects.get(identity)
        if stored is None:
            return
        stored.owners.discard(owner)
        if not stored.owners:
            self._remove(identity)
        elif stored.sender == owner and not stored.whole:
            stored.sender, stored.n_received = next(iter(stored.owners)), 0
            self._answer(stored.sender, SEND)

    def _remove(self, identity: bytes) -> None:
        self._objects.pop(identity).segment.close()

    def _answer(self, peer: bytes, frame: bytes) -> bool:
        """Send, and return whether the peer is there."""
        try:
            self._router.send_multipart([peer, frame], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            return error.errno == zmq.EAGAIN
        return True


def _room(size: int) -> Segment | None:
    """Return memory that is never used twice, so that jobs may map it without a word; None if there is none."""
    if not shm.AVAILABLE or not 0 < size < hostos.available_memory():
        return None
    try:
        segment = Segment(size)
    except OSError as error:
        logger.warning("no room for an object of %d bytes: %s", size, error.strerror or os.strerror(error.errno or 0))
        return None
    segment.escape()
    return segment
