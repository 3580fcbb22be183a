"""The frames of the data path: small messages are one, large ones two, and a message is fixed when it is built."""

from __future__ import annotations

import pytest

from parl_lite import frames
from parl_lite.frames import HEADER, LARGE, SEPARATE, build, name_of


def test_the_header_is_sixteen_bytes_as_the_table_says() -> None:
    frame, _ = build(frames.CALL, 2**64 - 1, b"step", [])
    assert HEADER.size == 16
    assert frame == bytes([frames.CALL, 0]) + (4).to_bytes(2, "little") + b"\0\0\0\0" + b"\xff" * 8 + b"step"


def test_a_small_message_is_one_frame_with_its_parts_behind_the_name() -> None:
    frame, body = build(frames.CALL, 7, b"step", [b"one", bytearray(b"two"), memoryview(b"three")])
    assert body is None
    assert HEADER.unpack_from(frame) == (frames.CALL, 0, 4, 7)
    assert frame[HEADER.size :] == b"steponetwothree"


@pytest.mark.parametrize("n_parts", [1, 2])
def test_a_large_payload_is_a_frame_of_its_own(n_parts: int) -> None:
    part = b"x" * (SEPARATE // n_parts)
    frame, body = build(frames.RESULT, 7, b"step", [part] * n_parts)
    assert HEADER.unpack_from(frame) == (frames.RESULT, LARGE, 4, 7)
    assert frame[HEADER.size :] == b"step"
    assert body == part * n_parts


def test_one_byte_less_is_still_small() -> None:
    assert build(frames.CALL, 1, b"", [b"x" * (SEPARATE - 1)])[1] is None


@pytest.mark.parametrize("size", [10, SEPARATE])
def test_a_message_does_not_change_with_its_parts(size: int) -> None:
    part = bytearray(size)
    frame, body = build(frames.CALL, 1, b"", [part])
    part[:] = b"\xff" * size
    assert bytes(size) == (body if body is not None else frame[HEADER.size :])


@pytest.mark.parametrize("name", ["", "step", "größe_✓"])
def test_a_name_comes_back(name: str) -> None:
    frame, _ = build(frames.GET, 1, name.encode(), [b"payload"])
    assert name_of(frame, HEADER.unpack_from(frame)[2]) == name


def test_no_two_kinds_have_one_number() -> None:
    numbers = {name: value for name, value in vars(frames).items() if name.isupper() and type(value) is int}
    kinds = [value for name, value in numbers.items() if name not in ("LARGE", "SHARED", "OFFERED", "KEPT", "SEPARATE")]
    assert len(kinds) == len(set(kinds)) >= 13
    assert all(0 < kind < 256 for kind in kinds)
