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
An array keeps type, dtype, shape and values, but not its strides; it is always writable and the receiver's own.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections import OrderedDict
from typing import Any

import numpy as np

from parl_lite import pickling
from parl_lite.arrow_codec import Flattened, MessageReader, MessageWriter, Signature, WriterCache, flatten_rollout
from parl_lite.columns import NotArrow
from parl_lite.errors import SerializationError
from parl_lite.rollout import Rollout

Bytes = bytes | bytearray | memoryview

PLAIN_PICKLE, ARROW_WITH_SCHEMA, ARROW, PICKLE_WITH_BUFFERS = 0x80, 1, 2, 3
ARROW_HEADER = struct.Struct("<BBxxIIxxxxQ")
PICKLE_HEADER = struct.Struct("<BxxxIQ")

N_SLOTS = 64
"""So many schemas are remembered by both ends of a connection."""

_SMALL = 8 * 1024
"""Smaller payloads are copied by the receiver: ZeroMQ keeps them misaligned in a large buffer of its own."""

_writers = WriterCache()


class Encoder:
    """Encodes what one connection carries in one direction: remembers which schemas the peer already has.

    Every payload must reach the peer's Decoder, in order; after one that was not sent, call `reset`. Not thread-safe.
    """

    def __init__(self) -> None:
        self._slots: OrderedDict[Signature, tuple[int, MessageWriter]] = OrderedDict()

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
        if pickling.is_plain(value):
            return [pickle.dumps(value, pickling.PROTOCOL)]
        try:
            return self._rollout_parts(value) if type(value) is Rollout else self._tree_parts(value)
        except NotArrow:
            pass
        return _pickle_parts(value, what)

    def reset(self) -> None:
        """Send every schema anew: for a payload that was encoded but never sent."""
        self._slots.clear()

    def _tree_parts(self, value: object) -> list[Bytes]:
        flat = Flattened(value)
        signature = flat.signature
        known = self._slots.get(signature)
        if known is not None:
            slot, writer = known
            self._slots.move_to_end(signature)
            return [ARROW_HEADER.pack(ARROW, slot, 0, 0, 1), *writer.frame(flat.leaves)]
        writer = _writers.get(signature, value, flat.leaves, None)
        parts = writer.frame(flat.leaves)
        slot = self._new_slot(signature, writer)
        return [ARROW_HEADER.pack(ARROW_WITH_SCHEMA, slot, len(writer.schema), 0, 1), writer.schema, *parts]
