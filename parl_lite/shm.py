"""Memory that processes of one user on one machine share: made by one, mapped by the others. Knows no sockets and no payloads.

A Segment is a file without a name (memfd): nothing of it is left whoever is killed, /dev/shm may be as small as it likes, and
the kernel keeps its pages as long as anyone has it open or mapped. Others open it as /proc/PID/fd/N, which only the
same user on the same machine can; the token in it proves that this is the file that was meant.

    offset  size
    0       16    token, random
    16      1     ESCAPED: others than its owner handed it on, so it is never used again
    64      4032  slots: the owner sets one for each process it sends a place to, who clears it when it needs the data no more
    4096          the data

`lend` gives a view of data and calls back when nothing refers to it any more. A forked child gets a copy of its own of
everything that is lent in its parent: the memory itself will be used again. The parent waits until the child has it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

AVAILABLE = hasattr(os, "memfd_create")

HEAD = 4096
_ESCAPED = 16
_FIRST_SLOT = 64
_TOKEN_SIZE = 16
_MAP_FIXED = 0x10
_MAP_POPULATE = 0x8000
_COPY_BY_NUMPY = 256 * 1024  # so much is copied without the GIL


class Place(NamedTuple):
    """Where data lies: what another process needs to open it."""

    token: bytes
    pid: int
    fd: int
    slot: int
    """The byte to clear in the end, 0 for none."""
    size: int


class Segment:
    """Shared memory of this process. `pinned` while this process itself uses it."""

    def __init__(self, capacity: int) -> None:
        """Make it, with all its pages; raises OSError when there is no memory, or too many files are open."""
        self.capacity = capacity
        self.token = secrets.token_bytes(_TOKEN_SIZE)
        self.pinned = True
        self.fd = os.memfd_create("parl_lite", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.fd, 0, HEAD + capacity)
            self._memory = _map(self.fd, HEAD + capacity)
        except BaseException:
            os.close(self.fd)
            raise
        self._memory[:_TOKEN_SIZE] = self.token
        self.data = memoryview(self._memory)[HEAD:]

    def place(self, size: int, slot: int = 0) -> Place:
        """Return what another process needs to read, or write, the first `size` bytes."""
        return Place(self.token, os.getpid(), self.fd, slot, size)

    def take_slot(self) -> int:
        """Return a slot that is set now; 0, and mark as escaped, when all are. Not thread-safe."""
        slot = self._memory.find(b"\0", _FIRST_SLOT, HEAD)
        if slot < 0:
            self.escape()
            return 0
        self._memory[slot] = 1
        return slot

    def holds(self, slot: int) -> bool:
        """Return whether whoever has the slot may still read."""
        return self._memory[slot] != 0

    def clear(self, slot: int) -> None:
        """Take a slot back that nobody was told of."""
        self._memory[slot] = 0

    def escape(self) -> None:
        """Never use it again: somebody unknown may read it."""
        self._memory[_ESCAPED] = 1

    @property
    def escaped(self) -> bool:
        """Whether somebody unknown may read it."""
        return self._memory[_ESCAPED] != 0

    def is_idle(self) -> bool:
        """Return whether nobody uses it."""
        return not self.pinned and self._memory.find(b"\1", _FIRST_SLOT, HEAD) < 0

    def unpin(self) -> None:
        """This process needs it no more; may be called from a finalizer."""
        self.pinned = False

    def write(self, parts: Any) -> None:
        """Copy the parts to the beginning of the data."""
        write(self.data, parts)

    def lend(self, size: int, *, readonly: bool = False) -> memoryview:
        """Return the first bytes, pinned until nothing refers to them."""
        data = self.data[:size]
        return lend(data.toreadonly() if readonly else data, self.unpin)

    def abandon(self) -> None:
        """Close it in a forked child, whose parent goes on with it."""
        os.close(self.fd)

    def close(self) -> None:
        """Give its pages back: at once if nobody can have it mapped, else when the last one ends."""
        if self.is_idle() and not self.escaped:
            os.ftruncate(self.fd, 0)
        os.close(self.fd)


def write(data: memoryview, parts: Any) -> None:
    """Copy the parts to the beginning of `data`."""
    begin = 0
    for part in parts:
        end = begin + len(part)
        if end - begin < _COPY_BY_NUMPY:
            data[begin:end] = part
        else:
            np.copyto(np.frombuffer(data[begin:end], np.uint8), np.frombuffer(part, np.uint8))
        begin = end


class Borrower:
    """What this process has mapped of others' memory. Mappings are kept: the same segments come again and again."""

    def __init__(self, n_kept: int = 128) -> None:
        self._n_kept = n_kept
        self._mappings: dict[bytes, tuple[int, mmap.mmap]] = {}
        on_fork_in_child(self._mappings.clear)

    def data(self, place: Place) -> memoryview:
        """Return the data of a place, writable; raises OSError when it is gone or not ours to open."""
        return memoryview(self._mapping(place))[HEAD : HEAD + place.size]

    def borrow(self, place: Place, *, readonly: bool = False) -> memoryview:
        """Return the data; its slot is cleared when nothing refers to it any more. Raises like `data`."""
        mapping = self._mapping(place)
        data = memoryview(mapping)[HEAD : HEAD + place.size]
        return lend(data.toreadonly() if readonly else data, lambda: self._done(mapping, place))

    def copy(self, place: Place) -> memoryview:
        """Return writable memory with the data in it, where pages are copied when they are written. Raises like `data`."""
        mapping = self._mapping(place)
        fd = _open(place)
        try:
            private = _map(fd, HEAD + place.size, mmap.MAP_PRIVATE, populate=False)
        finally:
            os.close(fd)
        return lend(memoryview(private)[HEAD:], lambda: self._done(mapping, place))

    def escape(self, place: Place) -> None:
        """Note in a segment that it is handed on: whoever owns it does not know who reads it."""
        self._mapping(place)[_ESCAPED] = 1

    def hold(self, place: Place) -> Place:
        """Open a place for good, so that it can be handed on from here; close its descriptor in the end."""
        return place._replace(pid=os.getpid(), fd=_open(place), slot=0)

    def can_open(self, place: Place) -> bool:
        """Return whether this process can read what the other has."""
        try:
            self._mapping(place)
        except OSError:
            return False
        return True

    def _mapping(self, place: Place) -> mmap.mmap:
        known = self._mappings.pop(place.token, None)
        if known is None:
            self._forget_the_dead()
            known = place.pid, _map_checked(place)
        self._mappings[place.token] = known  # the one used last is the last
        return known[1]

    def _forget_the_dead(self) -> None:
        for token, (pid, _) in list(self._mappings.items()):
            if not os.path.exists(f"/proc/{pid}"):
                self._mappings.pop(token, None)
        while len(self._mappings) >= self._n_kept:
            self._mappings.pop(next(iter(self._mappings)))

    def _done(self, mapping: mmap.mmap, place: Place) -> None:
        if not place.slot or mapping[_ESCAPED]:
            self._mappings.pop(place.token, None)  # it will not come again
        if place.slot:
            mapping[place.slot] = 0


def _open(place: Place) -> int:
    fd = os.open(f"/proc/{place.pid}/fd/{place.fd}", os.O_RDWR | os.O_CLOEXEC)
    if os.pread(fd, _TOKEN_SIZE, 0) != place.token or os.fstat(fd).st_size < HEAD + place.size:
        os.close(fd)
        raise FileNotFoundError("the memory is gone")
    return fd


def _map_checked(place: Place) -> mmap.mmap:
    fd = _open(place)
    try:
        return _map(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


# --- the system's calls ------------------------------------------------------------------------------------


def _map(fd: int, size: int, kind: int = mmap.MAP_SHARED, *, populate: bool = True) -> mmap.mmap:
    """Map a file, without the descriptor of its own that Python's mmap would keep: over a mapping of nothing."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _map_over(_address(memory), size, fd, kind | (_MAP_POPULATE if populate else 0))
    return memory


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    return libc


def _address(memory: Any) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def _map_over(address: int, size: int, fd: int, flags: int) -> None:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    arguments = ctypes.c_void_p(address), ctypes.c_size_t(size), protection, flags | _MAP_FIXED, fd, ctypes.c_long(0)
    if _libc().mmap(*arguments) != address:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot map {size} bytes: {os.strerror(number)}")


# --- lending and forks -------------------------------------------------------------------------------------

_lent: dict[int, tuple[weakref.ref[Array], Callable[[], None]]] = {}
"""What is lent, by a number of its own."""
_gates: dict[int, tuple[int, int]] = {}
"""The pipes whose end tells a forking thread that its child has its copies."""
_in_child: list[Callable[[], None]] = []


def lend(data: memoryview, done: Callable[[], None]) -> memoryview:
    """Return a view of data that begins at a page; `done` is called, by any thread, once nothing refers to it."""
    array = np.frombuffer(data, np.uint8)
    number = id(array)

    def ended(_: object) -> None:
        if _lent.pop(number, None) is not None:
            done()

    _lent[number] = weakref.ref(array, ended), done
    return array.data


def on_fork_in_child(forget: Callable[[], None]) -> None:
    """Call `forget` in every forked child, whose memory is made its own before."""
    _in_child.append(forget)


def _before_fork() -> None:
    if _lent:
        _gates[threading.get_ident()] = os.pipe()


def _after_fork_in_parent() -> None:
    gate = _gates.pop(threading.get_ident(), None)
    if gate is not None:
        os.close(gate[1])
        os.read(gate[0], 1)  # until the child closes it, or dies
        os.close(gate[0])


def _after_fork_in_child() -> None:
    lent = [array for reference, _ in list(_lent.values()) if (array := reference()) is not None]
    _lent.clear()  # what they were lent for is the parent's affair
    for array in lent:
        if array.size:
            _make_private(array)
    for forget in _in_child:
        forget()
    for gate in _gates.values():
        for fd in gate:
            os.close(fd)
    _gates.clear()


def _make_private(array: Array) -> None:
    """Put memory of this process's own, with the same bytes, where shared memory is."""
    kept = array.tobytes()
    address = int(array.ctypes.data)
    _map_over(address, array.nbytes, -1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.memmove(address, kept, len(kept))


if AVAILABLE:
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
