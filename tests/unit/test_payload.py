from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from payload_identity import assert_same, trip

from parl_lite import columns, payload
from parl_lite.errors import SerializationError
from parl_lite.payload import (
    ARROW,
    ARROW_HEADER,
    ARROW_WITH_SCHEMA,
    PICKLE_WITH_BUFFERS,
    PLAIN_PICKLE,
    Decoder,
    Encoder,
)
from parl_lite.rollout import Rollout

COLUMNS = {
    "obs": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.arange(6, dtype=np.float16).reshape(3, 2),
    "done": np.array([True, False, True]),
    "mask": np.array([[True], [False], [True]]),
    "time": np.array(["2020-01-01", "2021-01-01", "NaT"], "M8[s]"),
    "phase": np.array([1j, 2, 3], np.complex64),
    "none": np.zeros((3, 0)),
}
VALUES = {
    "array": np.arange(5.0),
    "zero dimensions": np.array(3, np.int16),
    "no numbers": np.zeros((0, 3)),
    "dict": COLUMNS,
    "tree": {"a/b": [COLUMNS["obs"], (1, 2.5, True, np.float32(3), np.bool_(False))], "a": {"b~": {}}, "": ()},
    "step": (np.zeros(4, np.float32), 1.0, False, False, {}),
    "rollout": Rollout(COLUMNS, {"policy_version": 3}),
}


@pytest.fixture(params=list(VALUES))
def value(request):
    return VALUES[request.param]


def arrow_frames(payloads: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the schema and the record batch messages in the payloads of one signature."""
    schema, messages = b"", []
    for data in payloads:
        _, _, schema_length, metadata_length, _ = ARROW_HEADER.unpack_from(data)
        start = ARROW_HEADER.size + schema_length
        schema += data[ARROW_HEADER.size : start]
        messages.append(data[start + metadata_length :])
    return schema, messages


def test_what_travels_is_byte_for_byte_what_pyarrow_writes(value):
    encoder = Encoder()
    schema, messages = arrow_frames([encoder.encode(value) for _ in range(3)])
    stream = pa.ipc.open_stream(schema + b"".join(messages) + b"\xff\xff\xff\xff\0\0\0\0")
    batches = list(stream)
    assert stream.schema.serialize().to_pybytes() == schema
    assert [batch.serialize().to_pybytes() for batch in batches] == messages
    for batch in batches:
        batch.validate(full=True)


def test_the_schema_travels_once(value):
    encoder = Encoder()
    kinds = [encoder.encode(value)[0] for _ in range(3)]
    assert kinds == [ARROW_WITH_SCHEMA, ARROW, ARROW]


def test_rollouts_of_any_length_share_a_schema():
    encoder, decoder = Encoder(), Decoder()
    payloads = [encoder.encode(Rollout({"x": np.arange(rows)})) for rows in (5, 3, 0, 5, 1)]
    assert [data[0] for data in payloads] == [ARROW_WITH_SCHEMA, ARROW, ARROW, ARROW, ARROW]
    assert [len(decoder.decode(data)) for data in payloads] == [5, 3, 0, 5, 1]


def test_received_rollouts_of_several_lengths_make_one_arrow_table():
    encoder = Encoder()
    payloads = [encoder.encode(Rollout({"x": np.arange(rows), "y": {"z": np.ones((rows, 2))}})) for rows in (2, 3)]
    schema, messages = arrow_frames(payloads)
    table = pa.ipc.open_stream(schema + b"".join(messages) + b"\xff\xff\xff\xff\0\0\0\0").read_all()
    assert table.column("x").to_pylist() == [0, 1, 0, 1, 2]
    assert Rollout.from_arrow(table)["y"]["z"].shape == (5, 2)


def test_a_rollout_arrives_with_columns_and_metadata():
    rollout = Rollout({"obs": {"image": COLUMNS["obs"]}, "done": COLUMNS["done"]}, {"version": 3, "env": "é", "x": 0.5})
    received = trip(rollout, allow_pickle=False)
    assert type(received) is Rollout and len(received) == 3
    assert_same(received.columns, rollout.columns)
    assert_same(received.metadata, rollout.metadata)


def test_a_rollout_with_long_metadata_arrives_too():
    rollout = Rollout(COLUMNS, {"settings": "x" * 100_000})
    received = trip(rollout)
    assert_same(received.columns, rollout.columns)
    assert received.metadata == rollout.metadata


@pytest.mark.parametrize(
    "value",
    [None, 7, 2**70, "text", b"bytes", 1j, (1, (2, "x"), {"a": [None]}), [1.5] * 1000, {3: 4}, {}, (), np.float32(1)],
    ids=repr,
)
def test_plain_data_are_a_pickle_and_nothing_else(value):
    data = Encoder().encode(value)
    assert data[0] == PLAIN_PICKLE
    assert_same(Decoder().decode(data), value)


def test_more_than_256_leaves_travel_by_pickle():
    for count, kind in ((256, ARROW_WITH_SCHEMA), (257, PLAIN_PICKLE)):
        value = [np.zeros(1, np.int8)] + [1] * (count - 1)
        assert Encoder().encode(value)[0] == kind
        assert_same(trip(value), value)


def test_a_tree_at_the_greatest_depth_travels_by_arrow_and_a_deeper_one_by_pickle():
    value = np.zeros(3)
    for depth in range(1, 40):
        value = [value]
        kinds = Encoder().encode(value)[0] == ARROW_WITH_SCHEMA
        assert kinds == (depth <= 32)
        assert_same(trip(value), value)


def test_an_array_met_twice_comes_back_as_one():
    array = np.arange(3)
    first, second = trip([array, array])
    assert first is second


def test_a_value_within_itself_travels():
    value: list = [np.zeros(3)]
    value.append(value)
    received = trip(value)
    assert received[1] is received


def test_keys_that_only_equal_strings_keep_their_type():
    class Key(str):
        pass

    encoder, decoder = Encoder(), Decoder()
    decoder.decode(encoder.encode({"obs": np.zeros(2)}))
    (key,) = decoder.decode(encoder.encode({np.str_("obs"): np.zeros(2)}))
    assert type(key) is np.str_
    (key,) = decoder.decode(encoder.encode({Key("obs"): np.zeros(2)}))
    assert type(key).__name__ == "Key"


def test_structures_with_the_same_leaves_are_told_apart():
    leaf = np.zeros(2)
    values = [{"a/b": leaf}, {"a": {"b": leaf}}, {"a": [leaf]}, {"a": (leaf,)}, {"a": [leaf, {}]}, {"a": [leaf, ()]}]
    values += [{"a": leaf, "b": 1}, {"a": leaf, "b": 1.0}, {"a": leaf, "b": True}, {"b": leaf, "a": 1}]
    encoder, decoder = Encoder(), Decoder()
    for value in values * 2:
        assert_same(decoder.decode(encoder.encode(value)), value)


def test_a_value_is_fixed_when_it_is_encoded():
    for size in (4, 100_000):
        value = {"x": np.zeros(size), "y": [bytearray(size)]}
        data = [Encoder().encode(value["x"]), Encoder().encode(value)]
        value["x"][:] = 1
        value["y"][0][:] = b"1" * size
        assert Decoder().decode(data[0]).max() == 0
        received = Decoder().decode(data[1])
        assert received["x"].max() == 0 and max(received["y"][0]) == 0


@pytest.mark.parametrize("offset", [0, 1, 4, 8, 64])
@pytest.mark.parametrize("size", [3, 2000])
@pytest.mark.parametrize("readonly", [False, True])
def test_arrays_are_writable_and_aligned_wherever_the_payload_lies(offset, size, readonly):
    numbers = np.arange(size, dtype=np.int64)
    for value in ({"a": numbers, "b": np.ones(3)}, {"a": numbers, "text": "x"}):
        data = Encoder().encode(value)
        frame = bytearray(offset) + data
        view = memoryview(frame)[offset:]
        assert_same(Decoder().decode(view.toreadonly() if readonly else view), value)


def test_a_large_writable_payload_is_not_copied():
    for value in ({"a": np.arange(5000), "b": 1}, {"a": np.arange(5000), "b": "x"}):
        frame = bytearray(Encoder().encode(value))
        received = Decoder().decode(memoryview(frame))
        assert np.shares_memory(received["a"], np.frombuffer(frame, np.uint8))


def test_what_arrives_in_bytes_is_not_changed_through_its_arrays():
    data = Encoder().encode(np.arange(5000))
    before = bytes(bytearray(data))
    Decoder().decode(data)[:] = -1
    assert data == before


@pytest.mark.parametrize("size", [10, 100_000])
def test_readonly_arrays_arrive_writable(size):
    array = np.arange(size)
    array.flags.writeable = False
    for value in (array, [array, "text"], [array, array]):
        assert_same(trip(value), value)


def test_parts_joined_behind_a_header_are_the_payload():
    for value in ({"a": np.arange(5000)}, {"a": np.arange(5000), "b": "x"}, None, bytes(100_000)):
        parts = Encoder().encode_parts(value)
        assert b"".join(parts) == Encoder().encode(value)
        assert sum(map(len, parts)) == len(Encoder().encode(value))


def test_large_numbers_are_not_copied_before_the_join():
    array, text = np.arange(5000), bytes(100_000)
    parts = Encoder().encode_parts([array, array, "x"])
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts if len(part) > 8000)
    assert any(part is text for part in Encoder().encode_parts([text, "x"]))


def test_slots_are_used_again_and_both_ends_agree(monkeypatch):
    monkeypatch.setattr(payload, "N_SLOTS", 3)
    encoder, decoder = Encoder(), Decoder()
    order = [0, 1, 2, 3, 0, 3, 4, 3, 2, 1, 0, 4, 4, 0]
    slots = set()
    for size in order:
        value = np.zeros(size + 1)
        data = encoder.encode(value)
        slots.add(data[1])
        assert_same(decoder.decode(data), value)
    assert slots == {0, 1, 2}


def test_the_slot_that_was_not_used_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(payload, "N_SLOTS", 2)
    encoder = Encoder()
    kinds = [encoder.encode(np.zeros(size))[0] for size in (1, 2, 1, 3, 1, 2)]
    assert kinds == [ARROW_WITH_SCHEMA, ARROW_WITH_SCHEMA, ARROW, ARROW_WITH_SCHEMA, ARROW, ARROW_WITH_SCHEMA]


def test_both_ends_agree_after_a_value_that_could_not_be_encoded():
    encoder, decoder = Encoder(), Decoder()
    for size in (1, 2, 1):
        with pytest.raises(SerializationError):
            encoder.encode([np.zeros(size), (item for item in ())])
        value = np.zeros(size)
        assert_same(decoder.decode(encoder.encode(value)), value)


def test_after_reset_the_schema_travels_again():
    encoder, decoder = Encoder(), Decoder()
    encoder.encode(np.zeros(3))  # never sent
    encoder.reset()
    assert_same(decoder.decode(encoder.encode(np.zeros(3))), np.zeros(3))
    assert_same(decoder.decode(encoder.encode(np.zeros(3))), np.zeros(3))


def test_a_payload_without_its_schema_is_an_error():
    encoder = Encoder()
    encoder.encode(np.zeros(3))
    with pytest.raises(SerializationError, match="schema 0"):
        Decoder().decode(encoder.encode(np.zeros(3)))


def test_numbers_beyond_arrows_limit_travel_by_pickle(monkeypatch):
    monkeypatch.setattr(columns, "MAX_CHILD_VALUES", 1000)
    below, beyond = np.zeros((7, 11, 12)), np.zeros((7, 11, 13))
    for array, kind in ((below, ARROW_WITH_SCHEMA), (beyond, PICKLE_WITH_BUFFERS)):
        data = Encoder().encode({"beyond": array})
        assert data[0] == kind
        assert_same(Decoder().decode(data), {"beyond": array})
    rollout = Rollout({"beyond": beyond})
    assert_same(trip(rollout).columns, rollout.columns)


@pytest.mark.large
def test_an_array_of_more_than_2_gib_travels():
    array = np.zeros(2**31 + 64, np.uint8)
    array[[0, 2**31 - 1, 2**31, -1]] = 1, 2, 3, 4
    received = Decoder().decode(bytearray(Encoder().encode({"x": array})))["x"]
    assert received.shape == array.shape and received.flags.writeable
    assert received[[0, 2**31 - 1, 2**31, -1]].tolist() == [1, 2, 3, 4]


@pytest.mark.large
def test_floats_of_more_than_2_gib_travel_by_arrow():
    array = np.zeros(2**29 + 64, np.float32)
    array[-1] = 4
    data = Encoder().encode({"x": array})
    assert data[0] == ARROW_WITH_SCHEMA
    received = Decoder().decode(bytearray(data))["x"]
    assert received.shape == array.shape and received[-1] == 4
