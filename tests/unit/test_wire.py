"""Messages survive the wire; bytes that are none give WireError and nothing else, whatever they are."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from builders import random_message, random_messages
from hypothesis import given, settings
from hypothesis import strategies as st

from parl_lite.messages import CATALOGUE, EndJob, Goodbye, JobEnded, JobReady, JoinAgain, JoinWorker, Welcome, schema_of
from parl_lite.wire import MAGIC, WireError, decode, encode

LIMIT = 1 << 20
DETERMINISTIC = settings(derandomize=True, deadline=None, database=None, max_examples=100)
ANY_MESSAGE = st.builds(
    lambda kind, seed: random_message(kind, random.Random(seed)), st.sampled_from([*CATALOGUE.values()]), st.integers(0, 10_000)
)


def refuse(frames: list[bytes], limit: int = LIMIT) -> str:
    """Return why frames are refused."""
    with pytest.raises(WireError) as caught:
        decode(frames, limit)
    return str(caught.value)


def tolerate(frames: list[bytes]) -> None:
    """Decode frames that may be a message; all but WireError fails the test."""
    try:
        message = decode(frames, LIMIT)
    except WireError:
        return
    assert type(message) in CATALOGUE.values()
    assert decode(encode(message), LIMIT) == message


def batch(kind: type, *rows: dict[str, object]) -> bytes:
    """Return the body of rows that need not make sense."""
    schema = pa.schema([field.with_nullable(True) for field in schema_of(kind)])
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return bytes(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize())


# Round trips


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_message_comes_back_as_it_was(name: str) -> None:
    sent = [message for message in random_messages(seed=3, n_of_each=10) if type(message).__name__ == name]
    assert len(sent) == 10
    assert [decode(encode(message), LIMIT) for message in sent] == sent


def test_a_message_that_came_back_has_the_types_of_its_fields() -> None:
    message = decode(encode(JobReady("e.1", 7, ("ipc:///a", "tcp://b"), "/log")), LIMIT)
    assert isinstance(message, JobReady)
    assert [type(value) for value in vars(message).values()] == [str, int, tuple, str]


def test_a_message_is_two_frames_with_its_name_in_the_first() -> None:
    head, body = encode(EndJob("e.1"))
    assert head == b"PLT1EndJob"
    assert pa.ipc.read_record_batch(pa.py_buffer(body), schema_of(EndJob)).to_pylist() == [{"job": "e.1"}]


# What is no message


@pytest.mark.parametrize("frames", [[], [b""], [MAGIC + b"JoinAgain"], [*encode(JoinAgain()), b""]])
def test_another_number_of_frames_is_refused(frames: list[bytes]) -> None:
    assert refuse(frames) == f"a control message has 2 frames, not {len(frames)}"


@pytest.mark.parametrize("head", [b"", b"PLT", b"PLT2EndJob", b"GET / HTTP/1.1", MAGIC + b"x" * 80])
def test_another_beginning_is_refused(head: bytes) -> None:
    assert refuse([head, b""]) == f"no parl_lite control message: it begins with {head[:16]!r}"


@pytest.mark.parametrize("name", [b"", b"Needs", b"Message", b"endjob", b"EndJob\0", b"\xff\xfe"])
def test_a_name_that_is_not_in_the_catalogue_is_refused(name: bytes) -> None:
    assert refuse([MAGIC + name, b""]) == f"unknown control message {name!r}"


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    frames = encode(Welcome("x" * 1000))
    assert decode(frames, len(frames[1])) == Welcome("x" * 1000)
    assert refuse([frames[0], b"\xff" * 2000], 1999) == "a control message of 2000 bytes is over the limit of 1999"


@pytest.mark.parametrize("rows", [[], [{"job": "a"}, {"job": "b"}]])
def test_any_other_number_of_rows_than_one_is_refused(rows: list[dict[str, object]]) -> None:
    assert f"it has {len(rows)} rows instead of 1" in refuse([MAGIC + b"EndJob", batch(EndJob, *rows)])


def test_a_missing_value_is_refused_unless_it_is_optional() -> None:
    row = vars(JobEnded("e.1", 7, None, None, "ended", False, "", ""))
    assert decode([MAGIC + b"JobEnded", batch(JobEnded, row)], LIMIT) == JobEnded(**row)
    assert "a value is missing" in refuse([MAGIC + b"JobEnded", batch(JobEnded, {**row, "reason": None})])


def test_the_body_of_another_message_is_refused() -> None:
    assert "the body of JoinWorker cannot be read" in refuse([MAGIC + b"JoinWorker", encode(EndJob("e.1"))[1]])


def test_a_message_that_no_honest_peer_sends_is_refused() -> None:
    message = next(message for message in random_messages(1, 1) if isinstance(message, JoinWorker))
    object.__setattr__(message, "n_cpu", -4)
    assert "a worker cannot offer -4 CPUs" in refuse(encode(message))


def test_a_compressed_body_is_refused_because_it_could_unfold_to_any_size() -> None:
    body = pa.record_batch([["\0" * 1_000_000]], schema=schema_of(Welcome))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, body.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(body)
    *_, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    small = message.serialize().to_pybytes()
    assert len(small) < 1000
    assert "it is no plain record batch" in refuse([MAGIC + b"Welcome", small])


def test_a_schema_in_place_of_a_batch_is_refused() -> None:
    assert "no plain record batch" in refuse([MAGIC + b"EndJob", schema_of(EndJob).serialize().to_pybytes()])


@pytest.mark.parametrize("mark", [b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0"])
def test_the_end_of_a_stream_in_place_of_a_batch_is_refused(mark: bytes) -> None:
    assert "cannot be read" in refuse([MAGIC + b"EndJob", mark])


def test_text_that_is_no_utf_8_is_refused() -> None:
    head, body = encode(EndJob("abcdefgh"))
    assert "cannot be read" in refuse([head, body.replace(b"abcdefgh", b"abc\xff\xfegh!")])


def test_a_list_that_claims_more_than_there_is_is_refused() -> None:
    head, body = encode(JobReady("e.1", 7, ("tcp://b",), "/log"))
    two_items = struct.pack("<ii", 0, 1)
    assert two_items in body
    assert "cannot be read" in refuse([head, body.replace(two_items, struct.pack("<ii", 0, 1 << 30))])


# Whatever the bytes are


@DETERMINISTIC
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_arbitrary_frames_give_only_wire_errors(frames: list[bytes]) -> None:
    refuse(frames)


@DETERMINISTIC
@given(st.sampled_from([*CATALOGUE]), st.binary(max_size=400))
def test_arbitrary_bodies_give_only_wire_errors(name: str, body: bytes) -> None:
    tolerate([MAGIC + name.encode(), body])


@DETERMINISTIC
@given(ANY_MESSAGE, st.data())
def test_truncated_messages_give_only_wire_errors(message: object, data: st.DataObject) -> None:
    head, body = encode(message)  # type: ignore[arg-type]
    tolerate([head, body[: data.draw(st.integers(0, len(body) - 1))]])


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages_give_only_wire_errors(seed: int) -> None:
    dice = random.Random(seed)
    for message in random_messages(seed, n_of_each=30):
        head, body = encode(message)
        changed = bytearray(body)
        for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
            changed[dice.randrange(len(changed))] = dice.choice([0, 1, 127, 128, 254, 255, dice.randrange(256)])
        tolerate([head, bytes(changed)])


@DETERMINISTIC
@given(ANY_MESSAGE, ANY_MESSAGE)
def test_bodies_under_another_name_give_only_wire_errors(message: object, other: object) -> None:
    tolerate([encode(other)[0], encode(message)[1]])  # type: ignore[arg-type]


def test_a_message_without_fields_has_an_empty_body_that_is_still_checked() -> None:
    head, body = encode(Goodbye())
    assert decode([head, body], LIMIT) == Goodbye()
    assert "cannot be read" in refuse([head, b""])
