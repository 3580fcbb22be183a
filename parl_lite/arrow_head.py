"""Where the numbers stand in the head of an Arrow record batch message, a flatbuffer of Arrow's Message.fbs. Reads heads of
pyarrow's making, or verified by it; trusts them.

    head      ff ff ff ff | size of the metadata (4) | metadata: Message {version, header's type, header, size of the body}
    header    RecordBatch {rows, [field node {length, nulls}], [buffer {offset, length}], compression}
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

PREFIX = 8
"""So many bytes come before the metadata."""
_MESSAGE_HEADER, _MESSAGE_BODY_SIZE = 2, 3
_BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 1, 2, 3


def head_of(data: bytes) -> bytes:
    """Return what comes before the body of a message."""
    return data[: PREFIX + int.from_bytes(data[4:PREFIX], "little")]


def is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch names a compression."""
    return _place_of(metadata, _BATCH_COMPRESSION, _target(metadata, _place_of(metadata, _MESSAGE_HEADER, _root(metadata)))) != 0


class Skeleton:
    """The head of all record batches of one schema, in which only lengths and counts differ."""

    def __init__(self, head: bytes) -> None:
        """Take the head of any batch of the schema."""
        metadata = head[PREFIX:]
        message = _root(metadata)
        batch = _target(metadata, _place_of(metadata, _MESSAGE_HEADER, message))
        self._head = head
        self._body_size_at = _place_of(metadata, _MESSAGE_BODY_SIZE, message)
        nodes, buffers = (_target(metadata, _place_of(metadata, field, batch)) for field in (_BATCH_NODES, _BATCH_BUFFERS))
        self._nodes_at, self._buffers_at = nodes + 4, buffers + 4
        self._nodes = struct.Struct(f"<{2 * _number(metadata, nodes)}q")
        self._buffers = struct.Struct(f"<{2 * _number(metadata, buffers)}q")

    def fill(self, nodes: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Return the head of a batch.

        Args:
            nodes: length and number of nulls of each column, columns within columns included, one after the other.
            sizes: bytes of each buffer; each begins at a multiple of 8.
        """
        *offsets, end = accumulate((size + -size % 8 for size in sizes), initial=0)
        head = bytearray(self._head)
        self._nodes.pack_into(head, PREFIX + self._nodes_at, *nodes)
        places = [number for pair in zip(offsets, sizes, strict=True) for number in pair]
        self._buffers.pack_into(head, PREFIX + self._buffers_at, *places)
        if self._body_size_at:
            head[PREFIX + self._body_size_at : PREFIX + self._body_size_at + 8] = end.to_bytes(8, "little")
        return bytes(head)


def _number(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _root(data: bytes) -> int:
    return _number(data, 0)


def _target(data: bytes, at: int) -> int:
    """Return where the table or vector is that a field refers to."""
    return at + _number(data, at)


def _place_of(data: bytes, field: int, table: int) -> int:
    """Return where a table keeps a field, 0 when it does not."""
    layout = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    entry = 4 + 2 * field
    offset = _number(data, layout + entry, 2) if entry < _number(data, layout, 2) else 0
    return table + offset if offset else 0
