"""put(value) -> Ref: a value stored once, mapped by every job of the machine that is given the Ref. Knows no channel.

A Ref travels as where its bytes lie:

    to a job of this machine      a place in this process's memory (shm.py); or in that of whoever it came from
    to one of another machine     its identity, and before that its bytes, once, to the worker there (stores.py)

Where it arrives it is mapped and opened at once. So the value lives as long as any process has a Ref to it or an array of
it, whichever of them ends: the kernel counts. A Ref on its way is kept by its sender until it has arrived; if that dies
meanwhile, the receiver gets a typed error.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from parl_lite import lending, shm, stores
from parl_lite.errors import ResourceError, SerializationError
from parl_lite.frames import PLACE
from parl_lite.lending import Lender
from parl_lite.payload import Decoder, Encoder
from parl_lite.pickling import Reducers
from parl_lite.security import ClusterKey
from parl_lite.shm import Place, Segment

_IDENTITY_SIZE = 16
_LOST = "a Ref was sent whose value is gone: the process that put it has ended, or let go of it before it arrived"

Bytes = bytes | bytearray | memoryview


class Ref:
    """Stands for a value that `put` stored; made by `put` only.

    Give it to any number of actors, in arguments of any kind: the bytes go once to each machine. Two are equal if they
    stand for the same `put`.

    Attributes:
        nbytes: the size of the stored value in bytes.
    """

    __slots__ = ("__weakref__", "_identity", "_memory", "_place", "_segment", "nbytes")

    def __init__(self, identity: bytes, memory: memoryview, segment: Segment | None = None, place: Place | None = None) -> None:
        self.nbytes = len(memory)
        self._identity = identity
        self._memory = memory
        self._segment = segment
        """The memory, if it is of this process."""
        self._place = place
        """Where this process has opened it, if not."""
        if place is not None:
            weakref.finalize(self, _close, place.fd, place.pid).atexit = False

    def result(self, timeout: float | None = None) -> Any:
        """Return the value, as `parl_lite.get` does. Its arrays are views of shared memory: they cannot be written to."""
        return _reading.shared.decode(self._memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"<Ref to {self.nbytes} bytes>"

    def __copy__(self) -> Ref:
        return self

    def __deepcopy__(self, _: object) -> Ref:
        return self

    def __reduce__(self) -> Any:
        return _known_here, (self._identity,)


class Contents:
    """Stands for the value of a Ref on its way: what arrives is the value, writable and the receiver's own."""

    __slots__ = ("ref",)

    def __init__(self, ref: Ref) -> None:
        self.ref = ref


class _Reading(threading.local):
    """The decoders of a thread: they know the schema that was read last."""

    def __init__(self) -> None:
        self.shared = Decoder(readonly=True)
        self.private = Decoder()


_reading = _Reading()
_known: WeakValueDictionary[bytes, Ref] = WeakValueDictionary()


def put(value: object) -> Ref:
    """Store a value, once, as it is now; return the Ref that stands for it in calls.

    `parl_lite.get(ref)` returns it, here and in every actor that was given the Ref; arrays in it cannot be written to,
    and cost no copy. It is released when no process has the Ref or an array of it any more. Each Ref takes one file
    descriptor of the process that made it.

    Raises:
        SerializationError: the value cannot travel.
        ResourceError: there is no memory for it, or too many files are open.
    """
    return put_parts(Encoder({Ref: _refuse_nested}).encode_parts(value, what="the value of put()"))


def put_parts(parts: Sequence[Bytes]) -> Ref:
    """Store an encoded value; raises ResourceError."""
    size = sum(map(len, parts))
    identity = secrets.token_bytes(_IDENTITY_SIZE)
    segment = lending.objects().take(size)
    if segment is None:
        raise ResourceError(f"put() cannot store {size} bytes: there is no memory for them, or too many files are open.")
    segment.write(parts)
    return _remember(Ref(identity, segment.lend(size, readonly=True), segment))


def _remember(ref: Ref) -> Ref:
    _known[ref._identity] = ref
    return ref


def _refuse_nested(ref: Ref) -> NoReturn:
    raise SerializationError("a Ref cannot be put: give get(ref) to put(), or pass both Refs to the call")


class Kept:
    """Keeps the Refs in an encoded value, so that it can be decoded in this process any number of times."""

    def __init__(self) -> None:
        self._refs: list[Ref] = []
        self.reducers: Reducers = {Ref: self._keep}

    def decode(self, data: bytes) -> Any:
        """Return the value."""
        return Decoder().decode(data)

    def _keep(self, ref: Ref) -> Any:
        self._refs.append(ref)
        return _known_here, (ref._identity,)


def _close(fd: int, pid: int) -> None:
    if os.getpid() == pid:
        os.close(fd)


# --- leaving -----------------------------------------------------------------------------------------------


class Packer:
    """Packs the Refs that leave over one connection. Not thread-safe."""

    def __init__(self, key: ClusterKey | None = None, *, local: bool = True) -> None:
        """Pack for a peer on this machine, or for one on another."""
        self.lender: Lender | None = None
        """Who notes what the peer has, if it can open our memory."""
        self.stores: tuple[str, ...] = ()
        """The addresses of the store of the peer's machine."""
        self.local = local
        """Whether the peer can open our memory, as far as is known."""
        self._by_file = local
        self._key = key
        self.packed: dict[bytes, tuple[Ref, bytes]] = {}
        """What was packed since the last `take`, by identity."""

    @property
    def reducers(self) -> Reducers:
        """What an Encoder needs."""
        return {Ref: self._pack, Contents: self._pack_contents}

    def take(self) -> list[Ref]:
        """Return what was packed since the last time: it must live until the peer has it."""
        packed, self.packed = self.packed, {}
        return [ref for ref, _ in packed.values()]

    def discard(self) -> None:
        """Take back what was packed and will not leave."""
        packed, self.packed = self.packed, {}
        for ref, place in packed.values():
            if place and ref._segment is not None:
                ref._segment.clear(Place(*PLACE.unpack(place)).slot)

    def _pack(self, ref: Ref) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return arrived, (ref._identity, self._place_of(ref))

    def _pack_contents(self, contents: Contents) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return arrived_contents, (contents.ref._identity, self._place_of(contents.ref))

    def _place_of(self, ref: Ref) -> bytes:
        """Return the packed place, b"" for the store; the same when a value is pickled a second time."""
        if ref._identity not in self.packed:
            self.packed[ref._identity] = ref, self._new_place(ref)
        return self.packed[ref._identity][1]

    def _new_place(self, ref: Ref) -> bytes:
        if not self.local:
            self._bring(ref)
            return b""
        if ref._segment is not None:
            return PLACE.pack(*self._hand_over(ref._segment, ref.nbytes))
        assert ref._place is not None
        _borrower.escape(ref._place)
        return PLACE.pack(*ref._place)

    def _hand_over(self, segment: Segment, size: int) -> Place:
        if self.lender is not None:
            return self.lender.hand_over(segment, size)
        return segment.place(size, lending.objects().take_slot(segment))

    def _bring(self, ref: Ref) -> None:
        store = next((address for address in self.stores if address.startswith("ipc://") == self._by_file), "")
        if not store:
            return  # a result: the caller may know it
        try:
            link = stores.link_to(store, self._key)
            if link.keep(ref._identity, ref._memory):
                weakref.finalize(ref, link.drop, ref._identity).atexit = False
        except stores.StoreLostError as error:
            raise SerializationError(f"the value of a Ref cannot be brought to the worker at {store}: {error}") from None


# --- arriving ----------------------------------------------------------------------------------------------

_borrower = shm.Borrower()
_home = ""
"""Where the store of this machine's worker is, for a job."""


def live_at(addresses: Sequence[str]) -> None:
    """Find what travels by identity alone in this store; for a job."""
    global _home
    _home = next((address for address in addresses if address.startswith("ipc://")), "")


def arrived(identity: bytes, packed: bytes) -> Ref:
    """Return the Ref that was sent; raises SerializationError when its value is gone. Named in pickles."""
    known = _known.get(identity)
    if known is not None:
        if packed:
            _open(packed, partial(_borrower.borrow, readonly=True))  # and give it back: one mapping is enough
        return known
    memory, place = _found(identity, packed, partial(_borrower.borrow, readonly=True))
    try:
        held = _borrower.hold(place)
    except OSError as error:
        raise SerializationError(f"a Ref cannot be opened: {error.strerror or error}") from None
    return _remember(Ref(identity, memory, place=held))


def arrived_contents(identity: bytes, packed: bytes) -> Any:
    """Return the value of a Ref that was sent, in memory of its own. Named in pickles."""
    memory, _ = _found(identity, packed, _borrower.copy)
    return _reading.private.decode(memory)


def _found(identity: bytes, packed: bytes, map_it: Callable[[Place], memoryview]) -> tuple[memoryview, Place]:
    if packed:
        return _open(packed, map_it)
    try:
        found = stores.link_to(_home, None).find(identity) if _home else b""
    except stores.StoreLostError:
        found = b""
    if not found:
        raise SerializationError(_LOST)
    return _open(found, map_it)


def _open(packed: bytes, map_it: Callable[[Place], memoryview]) -> tuple[memoryview, Place]:
    place = Place(*PLACE.unpack(packed))
    try:
        return map_it(place), place
    except OSError as error:
        raise SerializationError(f"{_LOST} ({error.strerror or error})") from None


def _known_here(identity: bytes) -> Ref:
    """Return a Ref that was pickled by other means than a call, which works within one process."""
    known = _known.get(identity)
    if known is None:
        raise SerializationError("a Ref travels in arguments and results of calls, and by no other means")
    return known
