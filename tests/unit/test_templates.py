"""Templates write what pyarrow would write, and read nothing else; what they leave is read by pyarrow."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from builders import place, random_message, random_messages, ready, want

from parl_lite import wire
from parl_lite.messages import CATALOGUE, JobEnded, JobGranted, JobReady, JoinWorker, Needs, StartJob, WantJob, schema_of
from parl_lite.templates import NoTemplate, Templates, columns_of

LIMIT = 1 << 20
LEFT_TO_PYARROW = {"JoinWorker", "JoinClient"}
BY_TEMPLATE = sorted(set(CATALOGUE) - LEFT_TO_PYARROW)


def by_pyarrow(message) -> bytes:
    """Return what pyarrow writes for a message."""
    kind = type(message)
    row = wire._plain_form(kind)(message)
    arrays = [pa.array([row[field.name]], field.type) for field in schema_of(kind)]
    return bytes(pa.RecordBatch.from_arrays(arrays, schema=schema_of(kind)).serialize())


def templates_of(message) -> Templates:
    return Templates(type(message), message, by_pyarrow(message))


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_the_bytes_are_those_of_pyarrow_whatever_the_values(name: str) -> None:
    dice = random.Random(name)
    messages = [random_message(CATALOGUE[name], dice) for _ in range(60)]
    templates = templates_of(messages[0])
    assert [templates.write(message) for message in messages] == [by_pyarrow(message) for message in messages]


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_what_was_written_is_read_without_pyarrow(name: str) -> None:
    dice = random.Random(name)
    messages = [random_message(CATALOGUE[name], dice) for _ in range(60)]
    templates = templates_of(messages[0])
    assert [templates.read(templates.write(message)) for message in messages] == messages


@pytest.mark.parametrize("name", sorted(LEFT_TO_PYARROW))
def test_what_lists_parts_or_numbers_is_left_to_pyarrow(name: str) -> None:
    with pytest.raises(NoTemplate):
        columns_of(CATALOGUE[name])


def test_a_form_that_is_not_known_is_left_to_pyarrow_and_known_then() -> None:
    message = JobReady("e.1", 7, ("tcp://here", "", "é"), "/log")
    body = by_pyarrow(message)
    assert templates_of(ready("e.22")).read(body) is None
    assert wire.decode([b"PLT1JobReady", body], LIMIT) == message
    assert wire._templates[JobReady].read(body) == message


def damaged(message, old: bytes, new: bytes) -> object:
    """Return what a template that knows a message's form reads when the last such bytes are others."""
    templates = templates_of(message)
    data = templates.write(message)
    at = data.rindex(old)
    assert templates.read(data) == message
    return templates.read(data[:at] + new + data[at + len(old) :])


def test_offsets_that_are_not_as_written_are_left_to_pyarrow() -> None:
    message = JobReady("abcde", 7, ("12", "345"), "/log/of/it")
    for wrong in (struct.pack("<ii", 0, 4), struct.pack("<ii", 1, 5), struct.pack("<ii", 0, 1 << 30)):
        assert damaged(message, struct.pack("<ii", 0, 5), wrong) is None
    for wrong in ((0, 9, 5), (0, 3, 2), (1, 2, 5), (0, -1, 5)):
        assert damaged(message, struct.pack("<iii", 0, 2, 5), struct.pack("<iii", *wrong)) is None
    assert damaged(message, struct.pack("<iii", 0, 2, 5), struct.pack("<iii", 0, 3, 5)) == JobReady(
        "abcde", 7, ("123", "45"), "/log/of/it"
    )


def test_text_that_is_no_utf_8_is_left_to_pyarrow() -> None:
    assert damaged(want(1), b"Actor", b"Act\xff\xfe") is None


def test_a_value_that_no_honest_peer_sends_is_left_to_pyarrow() -> None:
    message = WantJob(1, "Actor", Needs(77, 0, None))
    assert damaged(message, struct.pack("<q", 77), struct.pack("<q", -77)) is None


def test_a_bool_of_more_than_a_bit_is_left_to_pyarrow() -> None:
    message = StartJob("", "", "", Needs(7, 8, 9), (), True)
    data = by_pyarrow(message)
    assert templates_of(message).read(data[:-8] + b"\3" + data[-7:]) is None


def test_a_body_of_another_size_is_left_to_pyarrow() -> None:
    message = JobEnded("e.1", 7, None, 9, "was killed", False, "", "")
    templates = templates_of(message)
    data = templates.write(message)
    assert [templates.read(data[:-8]), templates.read(data + bytes(8)), templates.read(b"")] == [None, None, None]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_bytes_are_a_template_agrees_with_pyarrow(seed: int) -> None:
    dice = random.Random(seed)
    n_read = 0
    for message in random_messages(seed, n_of_each=20):
        kind = type(message)
        if kind.__name__ in LEFT_TO_PYARROW:
            continue
        templates = templates_of(message)
        data = bytearray(templates.write(message))
        for _ in range(dice.choice([1, 1, 2])):
            data[dice.randrange(len(data))] = dice.choice([0, 1, 127, 255, dice.randrange(256)])
        found = templates.read(bytes(data))
        if found is not None:
            n_read += 1
            assert wire._typed_form(kind)(wire._row(kind, bytes(data))) == found
    assert n_read > 10


def test_a_layout_that_is_not_ours_is_never_used() -> None:
    message = JobGranted(1, "e.1", place("w"), ("tcp://e",), "/log")
    padded = by_pyarrow(message) + bytes(8)
    with pytest.raises(NoTemplate, match="in another way"):
        Templates(JobGranted, message, padded)


def test_messages_without_end_are_written_with_bounded_memory() -> None:
    templates = templates_of(want(1))
    for length in range(3000):
        message = WantJob(1, "x" * length, Needs(1, 0, None))
        assert templates.read(templates.write(message)) == message
    assert len(templates._by_form) <= 1024 and len(templates._by_head) <= 1024


def test_a_list_of_jobs_is_written_by_pyarrow() -> None:
    message = next(message for message in random_messages(1, 1) if isinstance(message, JoinWorker))
    assert wire.decode(wire.encode(message), LIMIT) == message
    assert wire._templates[JoinWorker] is None
