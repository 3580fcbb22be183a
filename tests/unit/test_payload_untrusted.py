"""Bytes from anyone: nothing but SerializationError, no code is run, no memory is taken beyond what arrived."""

from __future__ import annotations

import json
import pickle
import random
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payload_identity import assert_same, trip

from parl_lite.errors import SerializationError
from parl_lite.payload import ARROW, ARROW_HEADER, ARROW_WITH_SCHEMA, PICKLE_HEADER, Decoder, Encoder
from parl_lite.rollout import Rollout

DETERMINISTIC = settings(derandomize=True, deadline=None, database=None, max_examples=300)

SAMPLES = [
    Encoder().encode(value)
    for value in (
        {"a": np.zeros((3, 2), np.float32), "b": (np.ones(2, bool), [True, 3, 2.5, np.float32(1)])},
        Rollout({"x": np.zeros((4, 3)), "o": {"y": np.arange(4)}}, {"v": 1, "s": "x"}),
        [np.zeros((0, 3)), np.zeros(3, "M8[ns]"), np.zeros((2, 2), np.complex64)],
        [1, "a", b"xx", {"k": None}, {1, 2}, 2**70, 1j],
        {"a": np.zeros(3), "s": "x"},
        {"a": np.zeros(5000), "s": "x"},
    )
]


def refuse(data: bytes, *, allow_pickle: bool = False) -> None:
    with pytest.raises(SerializationError):
        Decoder(allow_pickle).decode(data)


def arrow_payload(tree: object, body: bytes = b"", rows: int = 1, length: int | None = None) -> bytes:
    """Return an Arrow payload whose schema says `tree`, with a message of `body` without metadata."""
    schema = pa.schema([], metadata={"parl_lite": json.dumps(tree)}).serialize().to_pybytes()
    header = ARROW_HEADER.pack(ARROW_WITH_SCHEMA, 0, len(schema) if length is None else length, 0, rows)
    return header + schema + struct.pack("<II", 0xFFFFFFFF, 0) + body


def mutate(data: bytes, generator: random.Random) -> bytes:
    """Return the bytes with a few flipped, dropped, added or set to the ends of the ranges of integers."""
    damaged = bytearray(data)
    for _ in range(generator.choice([1, 1, 2, 4, 16])):
        i = generator.randrange(len(damaged) + 1 if generator.random() < 0.7 else min(40, len(damaged) + 1))
        match generator.randrange(4):
            case 0:
                damaged[i : i + 1] = bytes([generator.randrange(256)])
            case 1:
                del damaged[i : i + generator.randrange(1, 20)]
            case 2:
                damaged[i:i] = generator.randbytes(generator.randrange(1, 9))
            case 3:
                damaged[i : i + 4] = generator.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"9999"])
    return bytes(damaged)


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_damaged_payloads_are_refused_or_are_other_data(sample):
    generator = random.Random(sample)
    for _ in range(700):
        data = mutate(SAMPLES[sample], generator)
        try:
            Decoder(allow_pickle=False).decode(data)
        except SerializationError:
            pass


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_every_shortened_payload_is_refused(sample):
    data = SAMPLES[sample]
    for length in range(0, len(data), 1 + len(data) // 500):
        refuse(data[:length])
        refuse(data[:length], allow_pickle=True)


@DETERMINISTIC
@given(st.binary(max_size=100), st.sampled_from([b"", b"\x01", b"\x02", b"\x03", b"\x80\x05"]))
def test_any_bytes_are_refused_or_are_plain_data(data, beginning):
    try:
        Decoder(allow_pickle=False).decode(beginning + data)
    except SerializationError:
        pass


KEYS = st.sampled_from(["dict", "list", "tuple", "rollout", "x"])
WORDS = st.sampled_from(["array", "int", "<f4", "O"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children),
    max_leaves=20,
)


@DETERMINISTIC
@given(JSON, st.sampled_from([0, 1, 2**63]))
def test_any_description_is_refused_or_describes_what_follows(tree, rows):
    try:
        Decoder().decode(arrow_payload(tree, bytes(64), rows))
    except SerializationError:
        pass


def test_a_made_up_message_is_read():
    """The messages below are refused for what is said of each, not for how they are made."""
    value = Decoder(allow_pickle=False).decode(arrow_payload({"list": [["array", "<f4", [2]]]}, bytes(8)))
    assert_same(value, [np.zeros(2, np.float32)])


@pytest.mark.parametrize(
    "tree",
    [
        ["array", "<f4", [2**62, 2**62]],
        ["array", "<f4", [2**63]],
        ["array", "<f4", [-2]],
        ["array", "<f4", [2.0]],
        ["array", "<f4", [True]],
        ["array", "<f4", ["2"]],
        ["array", "<f4", [1] * 65],
        ["array", "<f4", [3]],
        ["array", "O", [1]],
        ["array", ">f4", [2]],
        ["array", "<U2", [1]],
        ["array", "f4,f4", [1]],
        ["array", "(2,)f4", [1]],
        ["array", "V8", [1]],
        ["array", "nonsense", [1]],
        ["array", "(" * 1000 + "f4", [1]],
        ["array", "f4" + "0" * 1000, [1]],
        ["array", "M8[", [1]],
        ["tensor", "nonsense", [1]],
        ["tensor", "<f4", [2]],
        ["object", "<f4", [2]],
        ["int", "", [1]],
        ["scalar", "<f4", [2]],
        ["array", "<f4"],
        {"dict": {"a": ["int", "", []]}, "list": []},
        {"set": [["int", "", []]]},
        {"dict": [["int", "", []]]},
        {"list": {"a": ["int", "", []]}},
        {"list": []},
        {"list": [["array", "<i1", [0]]] * 257},
        {"rollout": {"a/b": ["int", "", []], "a": ["int", "", []]}},
        {"rollout": {"a": ["int", "", []], "a/b": ["int", "", []]}},
        {"rollout": {"a": {"list": [["int", "", []]]}}},
        {"rollout": ["int", "", []]},
        {"rollout": {}},
        {"rollout": {"/".join("a" * 40): ["array", "<i8", []]}},
        None,
        "array",
        0,
    ],
    ids=lambda tree: str(tree)[:40],
)
def test_a_description_that_makes_no_sense_is_refused(tree):
    refuse(arrow_payload(tree, bytes(8)))


def test_a_description_nested_too_deeply_is_refused():
    for depth in (33, 5000):
        text = '{"list":[' * depth + '["int","",[]]' + "]}" * depth
        schema = pa.schema([], metadata={"parl_lite": text}).serialize().to_pybytes()
        refuse(ARROW_HEADER.pack(ARROW_WITH_SCHEMA, 0, len(schema), 0, 1) + schema + bytes(16))


def test_a_refused_schema_takes_no_slot():
    decoder = Decoder()
    decoder.decode(arrow_payload(["int", "", []], bytes(8)))
    with pytest.raises(SerializationError):
        decoder.decode(arrow_payload(["int", "", [1]], bytes(8)))
    with pytest.raises(SerializationError, match="schema 0, which did not arrive or was refused"):
        decoder.decode(ARROW_HEADER.pack(ARROW, 0, 0, 0, 1) + struct.pack("<IIq", 0xFFFFFFFF, 0, 1))


@pytest.mark.parametrize("rows", [0, 2, 2**62, 2**64 - 1])
def test_rows_that_do_not_fit_are_refused(rows):
    refuse(arrow_payload(["array", "<f4", [2]], bytes(8), rows))
    if rows != 2:
        refuse(arrow_payload({"rollout": {"x": ["array", "<f4", []]}}, bytes(8), rows))
    refuse(arrow_payload({"rollout": {"x": ["array", "<f4", [0]], "y": ["int", "", []]}}, bytes(8), rows))


def test_lengths_beyond_the_end_are_refused():
    for length in (2**20, 2**32 - 1):
        refuse(arrow_payload(["int", "", []], bytes(8), length=length))
    for count, length in ((0, 2**63), (2**32 - 1, 0), (1, 10), (1, 2**64 - 9)):
        refuse(PICKLE_HEADER.pack(3, count, length) + bytes(100), allow_pickle=True)
    refuse(PICKLE_HEADER.pack(3, 1, 4) + struct.pack("<Q", 2**63) + pickle.dumps(None), allow_pickle=True)


def test_rollout_metadata_that_make_no_sense_are_refused():
    data, good = Encoder().encode(Rollout({"x": np.zeros(2)}, {"name": "abcdefgh"})), b'{"name": "abcdefgh"}'
    assert good in data
    for bad in (b'{"name": [abcdefgh]}', b'{"name": ["abcdef"]}', b'["name", "abcdefgh"]', b"null null null null."):
        refuse(data.replace(good, bad))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b".",  # a bytearray of 8 GiB
        b"\x80\x05\x8e" + struct.pack("<Q", 2**33) + b".",  # bytes
        b"\x80\x05B" + struct.pack("<I", 2**31) + b".",
        b"\x80\x05\x8b" + struct.pack("<I", 2**31) + b".",  # a number of 2 GiB
        b"\x80\x05Nr" + struct.pack("<I", 2**29) + b".",  # a memo of 2^30 entries
        b"\x80\x05Np536870912\n.",
        b"\x80\x05\x95" + struct.pack("<Q", 2**40) + b"N.",  # a frame of 1 TiB
        arrow_payload({"rollout": {"x": ["array", "<f8", []]}}, bytes(8), 2**30),
        arrow_payload(["array", "<f8", [2**30]], bytes(8)),
        PICKLE_HEADER.pack(3, 2**30, 10) + bytes(100),
    ],
    ids=lambda data: repr(data[:4]),
)
def test_a_length_that_is_claimed_takes_no_memory(data):
    tracemalloc.start()
    try:
        refuse(data)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


PLAIN = [None, True, -(2**70), 1.5, 1j, "é" * 300, b"b" * 70_000, bytearray(70_000), (), (1,), (1, 2, 3, 4), [1] * 2000]
PLAIN += [{1: {2: (3, [4])}}, {1, 2}, frozenset((1, 2)), [[]] * 3, {"a" * 5: "x" * 70_000}, 300, 70_000]
PLAIN += [{i: i for i in range(400)}]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:30])
def test_plain_data_arrive_where_pickle_is_not_allowed(value):
    assert_same(trip(value, allow_pickle=False), value)
    assert_same(trip([value] * 40, allow_pickle=False), [value] * 40)


def test_a_structure_within_itself_arrives_where_pickle_is_not_allowed():
    value: list = [(), {}]
    value.append((value,))
    received = trip(value, allow_pickle=False)
    assert received[2][0] is received


class Trap:
    def __reduce__(self):
        return print, ("this must never run",)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Trap(), "builtins.print"),
        ({"a": [Trap()]}, "builtins.print"),
        (np.float32(1), "numpy"),
        ([np.zeros(3), "text"], "rebuild_array"),
        (np.array([None]), "numpy"),
        (len, "builtins.len"),
        (ValueError("x"), "builtins.ValueError"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_objects_are_refused_by_name_where_pickle_is_not_allowed(value, name, capsys):
    with pytest.raises(SerializationError, match=rf"needs .*{name}.*allow_pickle=True"):
        trip(value, allow_pickle=False)
    assert capsys.readouterr().out == ""


def test_objects_with_buffers_are_refused_where_pickle_is_not_allowed():
    with pytest.raises(SerializationError, match="allow_pickle=True"):
        trip([np.zeros(5000), "text"], allow_pickle=False)


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_other_protocols_do_no_harm(protocol):
    data = pickle.dumps([1, (2, "x"), {"a": Trap()}], protocol)
    refuse(data)


def test_what_raises_while_it_is_rebuilt_is_a_serialization_error():
    data = Encoder().encode(Stubborn())
    with pytest.raises(SerializationError, match="ZeroDivisionError: division by zero") as caught:
        Decoder().decode(data)
    assert type(caught.value.__cause__) is ZeroDivisionError


class Stubborn:
    def __getstate__(self):
        return 1

    def __setstate__(self, state):
        state / 0
