"""What this process lends to the actors it calls: large arguments, and room for large results. Knows segments, no sockets.

    a large argument      is written to a segment; the actor sets its slot free when its arrays are gone
    a large result        was large last time: so the next call of the method offers a segment, and the actor writes to
                          it; the arrays here are views of it, and when they are gone it can be lent again
The caller owns all segments: an actor that dies takes no result with it that has left it, and leaves nothing. What a lost
actor had is never lent again. When there are as many segments as there may be, values travel through the socket.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Sequence
from functools import cache

from parl_lite import hostos, shm
from parl_lite.frames import OFFERED, PLACE, SHARED, Bytes
from parl_lite.settings import Settings
from parl_lite.shm import Place, Segment

LEAST = 128 * 1024
"""Payloads from here on go through shared memory."""
_UNIT = 64 * 1024
_PAGES = 4096
_MOST_SEGMENTS = 256
_MOST_IDLE = 32
_MANY_LENT = 64
"""What is lent is looked through when it is so much."""
_SHARE = 4
"""Of the memory that is available a message takes no more than such a part."""
_FORGETFUL = 8
"""A size that was expected in vain shrinks by this part of it."""


class Pool:
    """The segments of this process. What is idle is used again; thread-safe."""

    def __init__(self, limit: int, *, strict: bool = True) -> None:
        """Make it empty, for so many bytes and a part of the files this process may open.

        One that is not strict makes more when they are needed, and drops what is more when it is idle.
        """
        self._limit = limit
        self._strict = strict
        self._most = min(_MOST_SEGMENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)
        self._segments: list[Segment] = []
        self._lock = threading.Lock()  # guards _segments, and that one segment is not taken twice
        shm.on_fork_in_child(self._forget)

    def take(self, size: int) -> Segment | None:
        """Return a segment for so many bytes, pinned; None when there may be no more of them, or there is no memory."""
        with self._lock:
            self._drop_escaped()
            idle = [segment for segment in self._segments if segment.is_idle()]
            fitting = [segment for segment in idle if size <= segment.capacity <= 2 * size + _UNIT]
            if fitting:
                best = min(fitting, key=lambda segment: segment.capacity)
                best.pinned = True
                return best
            return self._make(_capacity(size), idle)

    def take_slot(self, segment: Segment) -> int:
        """Return a slot of a segment for somebody who is sent its place."""
        with self._lock:
            return segment.take_slot()

    def trim(self) -> None:
        """Give back the memory of what is idle."""
        with self._lock:
            self._drop_escaped()
            for segment in self._segments.copy():
                if segment.is_idle():
                    self._drop(segment)

    def _make(self, capacity: int, idle: list[Segment]) -> Segment | None:
        used = sum(segment.capacity for segment in self._segments)
        while idle and (used + capacity > self._limit or len(self._segments) >= self._most or len(idle) > _MOST_IDLE):
            used -= idle[0].capacity
            self._drop(idle.pop(0))
        if self._strict and (used + capacity > self._limit or len(self._segments) >= self._most):
            return None
        if capacity > hostos.available_memory() // (_SHARE if self._strict else 1):
            return None
        try:
            segment = Segment(capacity)
        except OSError:
            return None  # no memory, or no file
        self._segments.append(segment)
        return segment

    def _drop_escaped(self) -> None:
        for segment in self._segments.copy():
            if segment.escaped and not segment.pinned:
                self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.close()

    def _forget(self) -> None:
        """Let go of what is the parent's."""
        self._lock = threading.Lock()
        while self._segments:
            self._segments.pop().abandon()


def _capacity(size: int) -> int:
    """Return the size of a segment for so many bytes: one of eight steps between two powers of two."""
    unit = max(_UNIT, (1 << size.bit_length()) // 16)
    return -(-size // unit) * unit


@cache
def pool() -> Pool:
    """Return this process's pool."""
    return Pool(Settings.from_environment().shared_memory)


@cache
def objects() -> Pool:
    """Return the pool of what was put."""
    return Pool(Settings.from_environment().shared_memory, strict=False)


@cache
def _proof() -> Segment | None:
    """Return a segment by which a job finds out whether it can open what is ours; never lent."""
    try:
        return Segment(_PAGES)
    except OSError:
        return None


def proof() -> tuple[object, ...] | None:
    """Return a place that who can open it can open all of ours; None where memory cannot be shared."""
    segment = _proof() if shm.AVAILABLE else None
    return None if segment is None else tuple(segment.place(1))


shm.on_fork_in_child(_proof.cache_clear)


def trim() -> None:
    """Give back what this process lends nobody now."""
    for one in (pool(), objects()):
        one.trim()


class Lender:
    """What is lent over one connection. Not thread-safe but for `close`."""

    def __init__(self) -> None:
        self.expected: dict[bytes, int] = {}
        self.offers: dict[int, tuple[bytes, Segment]] = {}
        """What may be answered in shared memory, by request."""
        self._lent: set[tuple[Segment, int]] = set()
        self._ended = False
        self._pid = os.getpid()

    def lend(self, request: int, name: bytes, parts: Sequence[Bytes], size: int) -> tuple[int, bytes]:
        """Put a large payload into shared memory, and offer some if the answer may be large; return flags and places."""
        flags, places = 0, b""
        if self._ended:
            return flags, places
        if size >= LEAST and (segment := pool().take(size)) is not None:
            segment.write(parts)
            places = PLACE.pack(*self.hand_over(segment, size))
            segment.unpin()
            flags = SHARED
        expected = self.expected.get(name)
        if expected is not None and (segment := pool().take(expected)) is not None:
            self.offers[request] = name, segment
            places += PLACE.pack(*segment.place(segment.capacity))
            flags |= OFFERED
        return flags, places

    def hand_over(self, segment: Segment, size: int) -> Place:
        """Return a place for the peer, who has it until it clears the slot."""
        slot = pool().take_slot(segment)
        if len(self._lent) >= _MANY_LENT:
            self._lent = {(other, its) for other, its in self._lent if other.holds(its)}
        self._lent.add((segment, slot))
        return segment.place(size, slot)

    def received(self, request: int, size: int) -> memoryview | None:
        """Return the answer that lies at the place that was offered; None if that is lost."""
        name, segment = self.offers.pop(request, (b"", None))
        if segment is None or size > segment.capacity:
            return None
        self.expected[name] = max(size, self.expected.get(name, 0) * (_FORGETFUL - 1) // _FORGETFUL)
        return segment.lend(size)

    def answered(self, request: int, name: bytes, size: int) -> None:
        """Note that an answer came by the socket."""
        offered, segment = self.offers.pop(request, (name, None))
        if segment is not None:
            segment.unpin()
        if size >= LEAST:
            self.expected[name or offered] = size
        elif segment is not None:
            self.expected.pop(offered, None)

    def stop(self) -> None:
        """Lend no more; what is under way goes on."""
        self._ended = True

    def close(self) -> None:
        """Let nothing be used again that the peer may still have: it is lost, or out of reach."""
        self._ended = True
        if os.getpid() != self._pid:
            return  # a forked child: the peer is the parent's
        offers, self.offers = self.offers, {}
        lent, self._lent = self._lent, set()
        for _, segment in offers.values():
            segment.escape()
            segment.unpin()
        for segment, slot in lent:
            if segment.holds(slot):
                segment.escape()
