"""The way to the object store of another machine's worker: bytes go there once, its jobs find them. Knows no values.

who has the object                          store (cluster/object_store.py)             job
  ──KEEP id size─────────────────────────────▶  has it: HAVE; has not: SEND
  ──PIECE id offset bytes, PIECE ...─────────▶  all there: HAVE
                                                          ◀─FIND id────────────────────────
                                                          ──place, or nothing─────────────▶  opens it
  ──DROP id, or the connection breaks────────▶  gone, unless another owner keeps it
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Sequence

import zmq

from parl_lite.security import ClusterKey
from parl_lite.settings import Settings
from parl_lite.sockets import connect, data_dealer, watch_connection

KEEP, PIECE, DROP, FIND = (bytes([number]) for number in range(1, 5))
HAVE, SEND, NONE = b"have", b"send", b"none"
NUMBER = struct.Struct("<Q")
PIECE_SIZE = 4 * 1024 * 1024
_PIECES_UNDER_WAY = 4
_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


class StoreLostError(Exception):
    """The connection to a store broke."""


class StoreLink:
    """A connection to one store; thread-safe. What it keeps there goes when it is dropped, or with the connection."""

    def __init__(self, address: str, key: ClusterKey | None) -> None:
        settings = Settings.from_environment()
        self._lock = threading.Lock()  # guards the socket; finalizers, which may run while it is held, only try it
        self._pid = os.getpid()
        self._kept: set[bytes] = set()
        self._dropped: deque[bytes] = deque()
        self._socket = data_dealer(_context(), settings)
        self._socket.set(zmq.SNDHWM, _PIECES_UNDER_WAY)
        self._socket.set(zmq.SNDTIMEO, int(settings.poll_slice * 1000))
        self._monitor = watch_connection(self._socket)
        self.broken = False
        connect(self._socket, address, key)

    def keep(self, identity: bytes, data: memoryview) -> bool:
        """Return when the store has the object, and whether it is new to it; raises StoreLostError."""
        with self._lock:
            self._tell_dropped()
            if identity in self._kept:
                return False
            self._send([KEEP, identity, NUMBER.pack(len(data))])
            answer = self._answer()
            while answer == SEND:
                for begin in range(0, len(data), PIECE_SIZE):
                    self._send([PIECE, identity, NUMBER.pack(begin), data[begin : begin + PIECE_SIZE]])
                answer = self._answer()
            if answer != HAVE:
                raise StoreLostError("it has no memory for it")
            self._kept.add(identity)
        self.drop_dropped()
        return True

    def drop(self, identity: bytes) -> None:
        """Let the store forget an object; may be called from a finalizer, of any thread."""
        if os.getpid() == self._pid:
            self._dropped.append(identity)
            self.drop_dropped()

    def drop_dropped(self) -> None:
        """Tell the store what was dropped, unless somebody else has the socket, who will."""
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                self._tell_dropped()
            except StoreLostError:
                self._dropped.clear()
            finally:
                self._lock.release()

    def find(self, identity: bytes) -> bytes:
        """Return the place of an object, packed; b"" if the store has no such. Raises StoreLostError."""
        with self._lock:
            self._send([FIND, identity])
            answer = self._answer()
        return b"" if answer == NONE else answer

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._close()

    def _tell_dropped(self) -> None:
        while self._dropped:
            identity = self._dropped.popleft()
            if identity in self._kept:
                self._kept.discard(identity)
                self._send([DROP, identity])

    def _send(self, frames: Sequence[bytes | memoryview]) -> None:
        while True:
            self._check()
            try:
                self._socket.send_multipart(frames, copy=True)
            except zmq.Again:
                continue
            return

    def _answer(self) -> bytes:
        while True:
            try:
                frame = self._socket.recv()
            except zmq.Again:
                self._check()
                continue
            if frame:  # an empty one looks whether we are there
                return frame

    def _check(self) -> None:
        if not self.broken and self._monitor.poll(0):
            self._close()
        if self.broken:
            raise StoreLostError("the connection to it broke")

    def _close(self) -> None:
        if not self.broken:
            self.broken = True
            self._kept.clear()
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)


_links: dict[tuple[int, str], StoreLink] = {}
_linking = threading.Lock()  # guards _links


def link_to(address: str, key: ClusterKey | None) -> StoreLink:
    """Return this process's connection to a store."""
    with _linking:
        link = _links.get((os.getpid(), address))
        if link is None or link.broken:
            link = _links[os.getpid(), address] = StoreLink(address, key)
        return link


def disconnect() -> None:
    """Close all connections; the stores forget what this process kept there."""
    with _linking:
        own = [place for place in _links if place[0] == os.getpid()]
        for place in own:
            _links.pop(place).close()


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return this process's context; one that a fork brought along must not be touched."""
    if os.getpid() not in _contexts:
        _contexts[os.getpid()] = zmq.Context()
    return _contexts[os.getpid()]


def _renew_lock() -> None:
    global _linking
    _linking = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
