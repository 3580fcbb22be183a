"""The data path's frames: what a handle asks of a job and what the job answers. Knows bytes only.

A message is one ZeroMQ frame (a small one costs least so), and a second one for a large payload (received without a copy).

    offset  size
    0       1     kind
    1       1     flags: where the payload is, see below
    2       2     length of the name
    8       8     number of the request; answers repeat it
    16            the name (UTF-8), places, then the payload unless it is elsewhere, see payload.py

    LARGE (1)     the payload is the next frame
    SHARED (2)    it lies in shared memory of the caller: at a place (36 bytes), or, in an answer, at the one offered, where
                  only its size follows (8 bytes)
    OFFERED (4)   the answer may be written to a place (36 bytes)
    KEPT (8)      an answer has Refs that the job keeps until the caller sends SEEN

    place         token (16) | process (4) | descriptor (4) | slot (4) | size (8), see shm.py

    CREATE     (class, args, kwargs,    -> RESULT names of instance attributes that hide methods, ERROR
               {file: source text})
    CALL name  (args, kwargs)           -> RESULT value, ERROR
    GET name                            -> RESULT value, METHOD, ERROR
    SET name   value                    -> RESULT None, ERROR
    DELETE name                         -> RESULT None, ERROR
    CANCEL     (the request's number)   -> CANCELLED, if it had not begun
    SEEN       (the request's number)   the answer was read: Refs in it need not be kept any more
    SHARE      a place, or None         -> SHARES: whether the job can open it, where its worker keeps objects, and where a
                                           lane begins (file, token), see lanes.py, or None
    PROJECT    what the user's code is  -> RESULT None, NEED_CODE, ERROR
    CODE       the packed code          -> RESULT None, ERROR

An answer UNREADABLE says that a request's shared memory could not be opened, and so, that what its payload would have
taught the decoder is not known.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol

HEADER = struct.Struct("<BBHxxxxQ")

CREATE, CALL, GET, SET, DELETE, CANCEL, PROJECT, CODE, SHARE, SEEN = range(1, 11)
RESULT, ERROR, METHOD, CANCELLED, NEED_CODE, SHARES, UNREADABLE = range(65, 72)

NAMES = {CREATE: "__init__", GET: "attribute", SET: "attribute", DELETE: "attribute", PROJECT: "project", CODE: "code"}

Bytes = bytes | bytearray | memoryview

LARGE, SHARED, OFFERED, KEPT = 1, 2, 4, 8

PLACE = struct.Struct("<16sIIIQ")
SIZE = struct.Struct("<Q")

SEPARATE = 64 * 1024
"""Payloads from here on travel as a frame of their own, without a copy by ZeroMQ."""


class Lender(Protocol):
    """Who may put a payload into shared memory."""

    @property
    def expected(self) -> Mapping[bytes, int]:
        """The sizes of large results, by the names of what gives them."""

    def lend(self, request: int, name: bytes, parts: Sequence[Bytes], size: int) -> tuple[int, bytes]:
        """Return flags and places for a payload that is large, or whose answer may be."""


def build(
    kind: int, request: int, name: bytes, parts: Sequence[Bytes], lender: Lender | None = None
) -> tuple[bytes, bytes | None]:
    """Return the frame or the two frames of a message; the payload's parts are copied once, so its value is fixed now."""
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    if size < SEPARATE and (lender is None or name not in lender.expected):
        return b"".join((HEADER.pack(kind, 0, len(name), request), name, *parts)), None
    flags, places = (0, b"") if lender is None else lender.lend(request, name, parts, size)
    if flags & SHARED:
        return HEADER.pack(kind, flags, len(name), request) + name + places, None
    if size < SEPARATE:
        return b"".join((HEADER.pack(kind, flags, len(name), request), name, places, *parts)), None
    return HEADER.pack(kind, flags | LARGE, len(name), request) + name + places, b"".join(parts)


def build_answer(kind: int, request: int, name: str, parts: Sequence[Bytes]) -> tuple[bytes, bytes | None]:
    """Return the frame or the two frames of an answer; a large one tells the name of what was asked."""
    frame, body = build(kind, request, b"", parts)
    return (frame, None) if body is None else (_head(kind, LARGE, request, name), body)


def build_shared_answer(kind: int, request: int, name: str, size: int) -> bytes:
    """Return the frame of an answer that lies, with so many bytes, where the caller offered."""
    return _head(kind, SHARED, request, name) + SIZE.pack(size)


def with_kept(frame: bytes) -> bytes:
    """Return the frame of an answer, asking for SEEN."""
    return frame[:1] + bytes([frame[1] | KEPT]) + frame[2:]


def build_seen(request: int) -> bytes:
    """Return the frame that says that an answer was read."""
    return HEADER.pack(SEEN, KEPT, 0, request)


def _head(kind: int, flags: int, request: int, name: str) -> bytes:
    encoded = name.encode()
    return HEADER.pack(kind, flags, len(encoded), request) + encoded


def name_of(frame: bytes, length: int) -> str:
    """Return the name in a frame."""
    return str(frame[HEADER.size : HEADER.size + length], "utf-8")
