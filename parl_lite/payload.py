"""A user's value as one run of bytes, and back. Knows no sockets; what the bytes travel in is the caller's affair.

    first byte  what                         layout
    0x80        plain pickle                 the pickle itself: protocol 5 begins with this byte
    1           Arrow, with its schema       header | schema | metadata | record batch message
    2           Arrow, schema sent before    header | metadata | record batch message
    3           pickle with buffers          header | n lengths (8 each) | pickle | buffer | buffer ...

    Arrow header, 24 bytes                   pickle header, 16 bytes
    0   1   kind                             0   1   kind
    1   1   slot: "schema k" from now on     4   4   n, the number of buffers
    4   4   length of the schema, or 0       8   8   length of the pickle
    8   4   length of the metadata
    16  8   rows

Schema and record batch are Arrow IPC messages, byte for byte as pyarrow writes them: schema + batches + ff ff ff ff
00 00 00 00 is an Arrow stream. The metadata are those of a Rollout, as JSON, spaces up to a multiple of 8. All lengths
are little-endian. Numbers of Arrow columns lie at multiples of 8 bytes from the start of the payload, buffers at
multiples of 64: whoever puts a header before a payload pads it likewise, or the receiver must copy once more.

What goes by Arrow: dicts (with str keys), lists and tuples that hold at least one numpy array or torch CPU tensor, all
else in them being arrays, tensors, numpy scalars, bool, int (64 bits) and float, at most 256 of these; and a Rollout.
Anything else, and anything that would lose something, goes by pickle: subclasses, text, objects, structured and
big-endian arrays, the same array twice, tensors that require grad, more than 2^31 - 1 numbers in one array.
An array keeps type, dtype, shape and values, but not its strides; it is always writable and the receiver's own. The
columns of a rollout are arrays of their own where they arrive, also where two were one.
"""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl_lite import pickling
from parl_lite.arrow_codec import Bytes
from parl_lite.arrow_reader import MessageReader
from parl_lite.arrow_writer import Flattened, MessageWriter, Signature, WriterCache
from parl_lite.columns import NotArrow
from parl_lite.errors import SerializationError
from parl_lite.pickling import Reducers
from parl_lite.plain_pickle import load_plain
from parl_lite.rollout import Rollout

PLAIN_PICKLE, ARROW_WITH_SCHEMA, ARROW, PICKLE_WITH_BUFFERS = 0x80, 1, 2, 3
ARROW_HEADER = struct.Struct("<BBxxIIxxxxQ")
PICKLE_HEADER = struct.Struct("<BxxxIQ")

N_SLOTS = 64
"""So many schemas are remembered by both ends of a connection."""

_SMALL = 8 * 1024
"""Smaller payloads are copied by the receiver: ZeroMQ keeps them misaligned in a large buffer of its own."""

_MAX_METADATA = 64 * 1024  # of a rollout; longer ones take the whole rollout to pickle
_ALIGNMENT = 64  # of buffers beside a pickle

_NO_PICKLE = (
    "a received value holds objects around arrays, and this connection takes plain data only (allow_pickle=False); "
    "have it send arrays, numbers and containers of them, or connect with allow_pickle=True if you trust the sender"
)
_IMPORT_HINT = "; its module must be installed here, be part of the project, or be listed in distributed_files"

NO_ARGUMENTS: tuple[tuple[()], dict[str, Any]] = ((), {})
"""What a call without arguments sends: so common that it is encoded once."""
_NO_ARGUMENTS_ENCODED = pickle.dumps(NO_ARGUMENTS, pickling.PROTOCOL)

_writers = WriterCache()


class Encoder:
    """Encodes what one connection carries in one direction: remembers which schemas the peer already has.

    Every payload must reach the peer's Decoder, in order; after one that was not sent, call `reset`. Not thread-safe.
    """

    def __init__(self, reducers: Reducers | None = None) -> None:
        """Pickle objects of some classes in the connection's own way."""
        self._reducers = reducers
        self._slots: dict[Signature, _Slot] = {}
        self._n_messages = 0

    def encode(self, value: object, *, what: str = "the value") -> bytes:
        """Return the value as bytes of its own, copied once: it may change afterwards.

        Raises SerializationError, which begins with `what`, for a value that cannot travel.
        """
        parts = self.encode_parts(value, what=what)
        if len(parts) == 1 and type(parts[0]) is bytes:
            return parts[0]
        try:
            return b"".join(parts)
        except MemoryError as error:
            self.reset()
            raise SerializationError(f"{what} cannot be sent: {sum(map(len, parts))} bytes of memory needed") from error

    def encode_parts(self, value: object, *, what: str = "the value") -> list[Bytes]:
        """Return the payload in parts, to be joined (b"".join) behind a header before the value changes.

        Large arrays are views of the value's own memory. Raises SerializationError like `encode`.
        """
        if value is NO_ARGUMENTS:
            return [_NO_ARGUMENTS_ENCODED]
        if pickling.is_plain(value):
            return [pickle.dumps(value, pickling.PROTOCOL)]
        try:
            return self._arrow_parts(value)
        except NotArrow:
            pass
        return _pickle_parts(value, what, self._reducers)

    def reset(self) -> None:
        """Send every schema anew: for after a payload that was encoded but never sent."""
        self._slots.clear()

    def _arrow_parts(self, value: object) -> list[Bytes]:
        flat = Flattened(value)
        metadata = _metadata_of(value) if type(value) is Rollout else b""
        signature = flat.signature
        slot = self._slots.get(signature)
        if slot is None:
            return self._introduce(signature, value, flat, metadata)
        self._n_messages = slot.last_used = self._n_messages + 1
        return [
            ARROW_HEADER.pack(ARROW, slot.number, 0, len(metadata), flat.rows),
            metadata,
            *slot.writer.parts(flat),
        ]

    def _introduce(self, signature: Signature, value: object, flat: Flattened, metadata: bytes) -> list[Bytes]:
        """Return the parts of the first message of a signature."""
        writer = _writers.get(signature, value, flat)
        parts = writer.parts(flat)
        number = len(self._slots)
        if number == N_SLOTS:
            oldest = min(self._slots, key=lambda known: self._slots[known].last_used)
            number = self._slots.pop(oldest).number
        self._slots[signature] = _Slot(number, writer, self._n_messages)  # last: nothing may fail once it is taken
        header = ARROW_HEADER.pack(ARROW_WITH_SCHEMA, number, len(writer.schema), len(metadata), flat.rows)
        return [header, writer.schema, metadata, *parts]


@dataclass(slots=True)
class _Slot:
    """A place in the peer's table of schemas."""

    number: int
    writer: MessageWriter
    last_used: int


class Decoder:
    """Decodes what the peer's Encoder sent over one connection, in order. Not thread-safe."""

    def __init__(self, allow_pickle: bool = True, *, readonly: bool = False) -> None:
        """With allow_pickle=False nothing that arrives can run code: it is arrays and plain data, or an error.

        With readonly=True arrays in read-only memory stay there, and cannot be written to.
        """
        self._readonly = readonly
        self._readers: dict[int, MessageReader] = {}
        self._allow_pickle = allow_pickle

    def decode(self, data: Bytes) -> Any:
        """Return the value. Its arrays are writable, and nobody else's once `data` is not used further.

        They are views of `data` if that is writable, large and aligned to 8 bytes, else of one copy of it. Raises
        SerializationError for a value that cannot be built here, and for bytes that are no payload.
        """
        try:
            return self._decode(memoryview(data))
        except SerializationError:
            raise
        except Exception as error:  # a pickle may run any code, which may raise anything
            missing = isinstance(error, ImportError) or str(error).startswith("Can't get attribute")
            hint = _IMPORT_HINT if missing else ""
            raise SerializationError(f"a received value cannot be read: {type(error).__name__}: {error}{hint}") from error

    def _decode(self, data: memoryview) -> Any:
        kind = data[0] if data else -1
        if kind in (ARROW, ARROW_WITH_SCHEMA):
            return self._read_arrow(data if self._readonly else _private(data))
        if kind == PLAIN_PICKLE:
            return pickle.loads(data) if self._allow_pickle else load_plain(data)
        if kind != PICKLE_WITH_BUFFERS:
            raise SerializationError(f"a received value begins with {kind}, which is no kind of payload")
        if not self._allow_pickle:
            raise SerializationError(_NO_PICKLE)
        if not self._readonly:
            return _read_pickle(_private(data))
        with pickling.readonly():
            return _read_pickle(data)

    def _read_arrow(self, data: memoryview | bytearray) -> Any:
        kind, slot, schema_length, metadata_length, rows = ARROW_HEADER.unpack_from(data)
        start = ARROW_HEADER.size + schema_length
        if kind == ARROW_WITH_SCHEMA:
            self._learn(slot, bytes(data[ARROW_HEADER.size : start]))
        reader = self._readers.get(slot)
        if reader is None:
            raise SerializationError(f"a received value has schema {slot}, which did not arrive or was refused")
        if metadata_length > _MAX_METADATA + 8:
            raise SerializationError(f"a received rollout has {metadata_length} bytes of metadata")
        value = reader.read(data, start + metadata_length, rows)
        if not reader.is_rollout:
            return value
        metadata = bytes(data[start : start + metadata_length])
        return Rollout(value, json.loads(metadata) if metadata else None)

    def _learn(self, slot: int, schema: bytes) -> None:
        """Read a schema, unless it is the one that the slot has."""
        known = self._readers.pop(slot, None)
        self._readers[slot] = known if known is not None and known.schema == schema else MessageReader(schema)


def _metadata_of(rollout: Rollout) -> bytes:
    if not rollout.metadata:
        return b""
    text = json.dumps(rollout.metadata).encode()
    if len(text) > _MAX_METADATA:
        raise NotArrow("long metadata")
    return text + b" " * (-len(text) % 8)


def _pickle_parts(value: object, what: str, reducers: Reducers | None) -> list[Bytes]:
    pickled, buffers = pickling.dump(value, what, reducers)
    if not buffers:
        return pickled
    length = sum(map(len, pickled))
    lengths = struct.pack(f"<{len(buffers)}Q", *map(len, buffers))
    parts = [PICKLE_HEADER.pack(PICKLE_WITH_BUFFERS, len(buffers), length), lengths, *pickled]
    end = PICKLE_HEADER.size + len(lengths) + length
    for buffer in buffers:
        pad = -end % _ALIGNMENT
        parts += (bytes(pad), buffer)
        end += pad + len(buffer)
    return parts


def _read_pickle(data: memoryview | bytearray) -> Any:
    _, count, length = PICKLE_HEADER.unpack_from(data)
    view = memoryview(data)
    start = PICKLE_HEADER.size + 8 * count
    end = start + length
    buffers = []
    for size in struct.unpack_from(f"<{count}Q", data, PICKLE_HEADER.size):
        begin = end + -end % _ALIGNMENT
        end = begin + size
        buffers.append(view[begin:end])
    if end != len(data):
        raise SerializationError(f"a received value of {len(data)} bytes says it has {end}")
    return pickle.loads(view[start : start + length], buffers=buffers)


def _private(data: memoryview) -> memoryview | bytearray:
    """Return the payload in writable memory, aligned to 8 bytes, which the values may keep."""
    if data.readonly or len(data) < _SMALL or not np.frombuffer(data, np.int64, 1).flags.aligned:
        return bytearray(data)
    return data
