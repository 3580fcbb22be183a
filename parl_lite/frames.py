"""The data path's frames: what a handle asks of a job and what the job answers. Knows bytes only.

One ZeroMQ frame each way (a small message costs least as one frame):

    offset  size
    0       1     kind
    2       2     length of the name
    4       2     where the payload begins (a multiple of 64 for large payloads, so that arrays stay aligned)
    8       8     number of the request; answers repeat it
    16            the name (UTF-8), zeros up to the payload
                  the payload, see payload.py

    CREATE     (class, args, kwargs)    -> RESULT names of instance attributes that hide methods, or ERROR
    CALL name  (args, kwargs)           -> RESULT value, ERROR
    GET name                            -> RESULT value, METHOD, ERROR
    SET name   value                    -> RESULT None, ERROR
    DELETE name                         -> RESULT None, ERROR
    CANCEL     (the request's number)   -> CANCELLED, if it had not begun
    PROJECT    what the user's code is  -> RESULT None, NEED_CODE, ERROR
    CODE       the packed code          -> RESULT None, ERROR
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEADER = struct.Struct("<BxHHxxQ")

CREATE, CALL, GET, SET, DELETE, CANCEL, PROJECT, CODE = range(1, 9)
RESULT, ERROR, METHOD, CANCELLED, NEED_CODE = range(65, 70)

NAMES = {CREATE: "__init__", GET: "attribute", SET: "attribute", DELETE: "attribute", PROJECT: "project", CODE: "code"}

Bytes = bytes | bytearray | memoryview

_LARGE = 8 * 1024


def build(kind: int, request: int, name: bytes, parts: Sequence[Bytes]) -> bytes:
    """Return one frame: header, name, payload parts, copied once."""
    begin = HEADER.size + len(name)
    if sum(map(len, parts)) > _LARGE:
        padded = -(-begin // 64) * 64
        name += bytes(padded - begin)
        return b"".join((HEADER.pack(kind, len(name) - padded + begin, padded, request), name, *parts))
    return b"".join((HEADER.pack(kind, len(name), begin, request), name, *parts))


def name_of(frame: memoryview, length: int) -> str:
    """Return the name in a frame."""
    return str(frame[HEADER.size : HEADER.size + length], "utf-8")
