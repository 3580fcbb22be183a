"""The data path's frames: what a handle asks of a job and what the job answers. Knows bytes only.

A message is one ZeroMQ frame (a small one costs least so), and a second one for a large payload (received without a copy).

    offset  size
    0       1     kind
    1       1     LARGE (1): the payload is the next frame
    2       2     length of the name
    8       8     number of the request; answers repeat it
    16            the name (UTF-8), then the payload unless it is the next frame, see payload.py

    CREATE     (class, args, kwargs,    -> RESULT names of instance attributes that hide methods, ERROR
               {file: source text})
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

HEADER = struct.Struct("<BBHxxxxQ")

CREATE, CALL, GET, SET, DELETE, CANCEL, PROJECT, CODE = range(1, 9)
RESULT, ERROR, METHOD, CANCELLED, NEED_CODE = range(65, 70)

NAMES = {CREATE: "__init__", GET: "attribute", SET: "attribute", DELETE: "attribute", PROJECT: "project", CODE: "code"}

Bytes = bytes | bytearray | memoryview

LARGE = 1

SEPARATE = 64 * 1024
"""Payloads from here on travel as a frame of their own, without a copy by ZeroMQ."""


def build(kind: int, request: int, name: bytes, parts: Sequence[Bytes]) -> tuple[bytes, bytes | None]:
    """Return the frame or the two frames of a message; the payload's parts are copied once, so its value is fixed now."""
    if sum(map(len, parts)) < SEPARATE:
        return b"".join((HEADER.pack(kind, 0, len(name), request), name, *parts)), None
    return HEADER.pack(kind, LARGE, len(name), request) + name, b"".join(parts)


def name_of(frame: bytes, length: int) -> str:
    """Return the name in a frame."""
    return str(frame[HEADER.size : HEADER.size + length], "utf-8")
