"""The round trip is the identity: type, dtype with byte order, shape, value, containers and the order of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payload_identity import assert_same, trip

from parl_lite.errors import SerializationError
from parl_lite.payload import Decoder, Encoder

DETERMINISTIC = settings(derandomize=True, deadline=None, database=None, max_examples=150)

DTYPES = ["?", "i1", "<i2", ">i4", "<i8", ">u2", "u1", "<u8", "<f2", ">f4", "<f8", "g", "<c8", ">c16"]
DTYPES += ["<M8[ns]", "M8[D]", ">M8[s]", "<m8[ms]", "<U3", ">U2", "S4", "V5"]


def numbers(dtype: str, shape: tuple[int, ...], seed: int, layout: str) -> np.ndarray:
    """Return an array of this dtype and shape that lies in memory as `layout` says."""
    values = np.random.default_rng(seed).integers(0, 100, shape)
    if dtype == "V5":
        array = np.frombuffer(bytes(range(5)) * values.size, "V5").reshape(shape).copy()
    else:
        array = values.astype("i8").astype(dtype)
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "strided" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    if layout == "reversed" and array.ndim:
        return array[::-1]
    if layout == "readonly":
        array.flags.writeable = False
    return array


ARRAYS = st.builds(
    numbers,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 99),
    st.sampled_from(["C", "F", "strided", "reversed", "readonly"]),
)
LARGE_ARRAYS = st.builds(numbers, st.sampled_from(DTYPES), st.just((40, 60)), st.integers(0, 9), st.sampled_from("CF"))
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.booleans() | ARRAYS.filter(np.size).map(lambda a: a.flat[0])
LEAVES = ARRAYS | LARGE_ARRAYS | NUMBERS
ARROW_LEAVES = ARRAYS | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans()
OTHERS = st.none() | st.text(max_size=5) | st.binary(max_size=5) | st.complex_numbers()


def trees(leaves):
    return st.recursive(
        leaves,
        lambda children: (
            st.lists(children, max_size=4)
            | st.lists(children, max_size=4).map(tuple)
            | st.dictionaries(st.text(max_size=3), children, max_size=4)
        ),
        max_leaves=12,
    )


@DETERMINISTIC
@given(trees(ARROW_LEAVES))
def test_trees_of_arrays_and_numbers_come_back_as_they_were(value):
    assert_same(trip(value), value)


@DETERMINISTIC
@given(trees(LEAVES | OTHERS))
def test_trees_of_anything_come_back_as_they_were(value):
    assert_same(trip(value), value)


@DETERMINISTIC
@given(st.lists(trees(LEAVES), max_size=8), st.lists(st.integers(0, 7), max_size=20))
def test_many_values_over_one_connection_do_not_mix(values, order):
    encoder, decoder = Encoder(), Decoder()
    for i in order:
        if i < len(values):
            assert_same(decoder.decode(encoder.encode(values[i])), values[i])


@DETERMINISTIC
@given(st.lists(st.sampled_from(["send", "refuse", "forget"]), max_size=20), st.integers(1, 4))
def test_both_ends_agree_whatever_happens_between(happenings, n_signatures):
    encoder, decoder = Encoder(), Decoder()
    for i, happening in enumerate(happenings):
        value = {"x": np.arange(i % n_signatures), "i": i}
        if happening == "send":
            assert_same(decoder.decode(encoder.encode(value)), value)
        elif happening == "refuse":
            with pytest.raises(SerializationError):
                encoder.encode([value, (item for item in ())])
        else:
            encoder.encode(value)
            encoder.reset()


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
RECORDS = np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
STRUCTURED = np.array([(1, b"x")], dtype=[("a", ">i2"), ("b", "S3")])


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": v}, lambda v: (np.zeros(2), v)])
@pytest.mark.parametrize("value", [MASKED, RECORDS, STRUCTURED], ids=["masked", "records", "structured"])
def test_special_arrays_keep_their_type(value, wrap):
    sent = wrap(value)
    received = trip(sent)
    for _ in range(2):
        if type(sent) in (list, tuple, dict):
            sent, received = ([*v.values()][-1] if type(v) is dict else v[-1] for v in (sent, received))
            if type(sent) is np.ndarray:
                break
    assert type(received) is type(value) and received.dtype == value.dtype
    assert repr(received) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        np.array(["abc", "d"]),
        np.array([b"abc", b"d"]),
        np.array([None, "a", {"b": 1}], dtype=object),
        np.zeros(2000, object),
        np.array([], dtype=object),
        np.zeros(3, "V0"),
        np.array([1], dtype=np.longdouble),
        np.datetime64("2020-01-01"),
        np.timedelta64(3, "h"),
        np.float16(1.5),
        np.bool_(True),
        np.str_("x"),
        np.bytes_(b"x"),
        np.complex64(1j),
        np.longdouble(1) / 3,
        slice(np.int32(2), None),
        2**70,
        -0.0,
        float("nan"),
        bytearray(b"x"),
        bytearray(100_000),
        bytes(100_000),
        "x" * 100_000,
        {1, 2},
        frozenset("a"),
        ...,
        range(3),
        np.dtype(">f4"),
        np.float32,
    ],
    ids=lambda value: str(type(value)) + repr(value)[:20],
)
def test_odd_values_come_back_as_they_were(value):
    for sent in (value, [value], {"k": value}, (np.zeros(2), value)):
        assert_same(trip(sent), sent)


def test_a_key_that_is_no_unicode_travels():
    value = {"\ud800": np.zeros(2)}
    assert_same(trip(value), value)


def test_variable_width_strings_keep_their_dtype():
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy 1 has no StringDType")
    value = np.array(["a", "long" * 10], dtype=np.dtypes.StringDType())
    received = trip([value, np.zeros(2)])[0]
    assert received.dtype == value.dtype and received.tolist() == value.tolist()


def test_an_array_of_many_dimensions_travels():
    value = np.zeros((1,) * 31 + (2,))
    assert_same(trip(value), value)
