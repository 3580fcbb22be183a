"""Reads pickles of plain data that anyone may have sent: None, numbers, str, bytes and containers. Knows no arrays.

Two guards. `find_class` refuses every name but `complex`, so no code of anybody can be called. Before that, a look at
all opcodes refuses lengths beyond the end and the opcodes that only other picklers write: CPython's unpickler believes
lengths, and clears as many slots of its memo as a PUT asks for, which may be 2^32.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from parl_lite.errors import SerializationError

Bytes = bytes | bytearray | memoryview

_ARGUMENT_SIZES = {
    **dict.fromkeys(
        b".N\x88\x89]ae)\x85\x86\x87t(}su\x8f\x90\x91\x9401"  # STOP, constants, containers, MEMOIZE, POP
        b"\x93R\x81\x92b",  # STACK_GLOBAL, REDUCE, NEWOBJ, NEWOBJ_EX, BUILD: `find_class` names what they need
        0,
    ),
    **dict.fromkeys(b"\x80Kh", 1),  # PROTO, BININT1, BINGET
    **dict.fromkeys(b"M", 2),  # BININT2
    **dict.fromkeys(b"Jj", 4),  # BININT, LONG_BINGET
    **dict.fromkeys(b"G\x95", 8),  # BINFLOAT, FRAME
}
"""Opcodes of protocol 5 whose argument has a fixed size in bytes."""

_LENGTH_SIZES = {
    **dict.fromkeys(b"\x8a\x8cC", 1),  # LONG1, SHORT_BINUNICODE, SHORT_BINBYTES
    **dict.fromkeys(b"\x8bXB", 4),  # LONG4, BINUNICODE, BINBYTES
    **dict.fromkeys(b"\x8d\x8e\x96", 8),  # BINUNICODE8, BINBYTES8, BYTEARRAY8
}
"""Opcodes whose argument begins with its length, by the size of that length in bytes."""


def load_plain(data: Bytes) -> Any:
    """Return the value of a pickle of protocol 5 that holds plain data only; safe for any bytes.

    Raises SerializationError for a pickle of anything else, and what pickle raises for bytes that are no pickle.
    """
    data = bytes(data)
    _check_opcodes(data)
    return _PlainUnpickler(io.BytesIO(data)).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "complex"):  # the one kind of number without an opcode of its own
            return complex
        raise SerializationError(
            f"a received value needs {module}.{name}, and this connection takes plain data only (allow_pickle=False); "
            "have it send arrays, numbers and text, or connect with allow_pickle=True if you trust the sender"
        )


def _check_opcodes(data: bytes) -> None:
    position, end = 0, len(data)
    while position < end:
        opcode = data[position]
        position += 1
        if opcode in _ARGUMENT_SIZES:
            position += _ARGUMENT_SIZES[opcode]
        elif opcode in _LENGTH_SIZES:
            start = position + _LENGTH_SIZES[opcode]
            position = start + int.from_bytes(data[position:start], "little")
        else:
            raise SerializationError(f"a received pickle has the opcode {opcode:#x}, which plain data do not need")
    if position != end:
        raise SerializationError("a received pickle says that it is longer than it is")
