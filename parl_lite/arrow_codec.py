"""How a value made of arrays is laid out as one Arrow record batch message. Knows no slots and no pickles.

For values of one signature (containers, dtypes, shapes) everything in a message but the numbers is constant. So pyarrow
writes the first one, and its constant parts are kept: the schema and, for a number of rows, the head of the message.
After that a message is the head and the bytes of each leaf, padded to 8 bytes; reading is arithmetic on offsets:

    message   ff ff ff ff | length of the metadata (4) | metadata (flatbuffer) | body
    body      leaf 0, zeros up to a multiple of 8 | leaf 1, zeros ... | ...

The metadata of the schema describes the value under `parl_lite`, as JSON; the reader checks it and trusts nothing else:

    leaf      ["array", "<f4", [128, 4]], ["tensor", "bfloat16", [128, 4]], ["scalar" (of numpy), "<f4", []],
              ["bool" or "int" or "float", "", []]
    dict      {"dict": {name: node, ...}}
    sequence  {"list": [node, ...]}, {"tuple": [node, ...]}
    rollout   {"rollout": {path: leaf, ...}}: the shapes are those of a row, the number of rows comes with each message

A rollout of T steps has T rows, any other value one row.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from parl_lite import tensors
from parl_lite.columns import checked_dtype

Bytes = bytes | bytearray | memoryview

METADATA_KEY = b"parl_lite"
MAX_LEAVES = 256
MAX_DEPTH = 32
MAX_DIMENSIONS = 64
MAX_SCHEMA_SIZE = 256 * 1024

CONTINUATION = 0xFFFFFFFF
PREFIX = struct.Struct("<II")
"""What a message begins with: CONTINUATION and the length of its metadata."""

PYTHON_CODES = {"bool": "<?", "int": "<q", "float": "<d"}
"""How the numbers of Python are packed."""

_ALIGNMENT = 8  # of the columns in a body, as pyarrow has it


class Leaf(NamedTuple):
    """One array or number of a value. `shape` is that of one row in a rollout."""

    kind: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype of its bytes; raises NotArrow, or KeyError for a kind or dtype that nobody knows."""
        if self.kind == "tensor":
            return tensors.STORAGE[self.dtype]
        if self.kind in ("array", "scalar"):
            return checked_dtype(self.dtype)
        return np.dtype(PYTHON_CODES[self.kind])


def body_layout(leaves: Sequence[Leaf], rows: int) -> tuple[list[int], int]:
    """Return where each leaf begins in the body of a message, and the body's size in bytes."""
    offsets, end = [], 0
    for leaf in leaves:
        offsets.append(end)
        end += -(-rows * math.prod(leaf.shape) * leaf.storage.itemsize // _ALIGNMENT) * _ALIGNMENT
    return offsets, end
