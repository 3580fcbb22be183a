"""@batched as a mark, trees stacked and split, and a batch of calls run together: all without a cluster."""

from __future__ import annotations

import functools
import math
import pickle
import random
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
import torch

import parl_lite
from parl_lite import ParlError, frames
from parl_lite.batching import Batching, batched, batched_methods
from parl_lite.cluster.job_batch import Call, Returned, call_together
from parl_lite.cluster.job_state import Request
from parl_lite.stacking import alike, has_leaves, signature, split, stack


class Pair(NamedTuple):
    action: Any
    value: Any


class Server:
    """Records the shapes it is called with."""

    def __init__(self):
        self.sizes = []

    @batched(max_size=8, timeout=0.5)
    def double(self, x, scale=1.0):
        self.sizes.append(len(x))
        if np.any(np.asarray(x) < 0):
            raise ValueError("negative")
        return 2 * x * scale if np.ndim(scale) == 0 else 2 * x * scale.reshape(-1, *[1] * (x.ndim - 1))

    @batched
    def __call__(self, x):
        return x

    @batched()
    def wrong(self, x):
        return {"value": x[:1]}

    @batched()
    def rows(self, x):
        return list(x)

    @batched()
    def forget(self, x):
        return None

    @batched()
    def leave(self, x):
        raise SystemExit(3)

    @staticmethod
    @batched(max_size=2)
    def static(x):
        return x

    def plain(self, x):
        return x


# The mark


def test_the_function_itself_is_returned_with_its_settings():
    def method(self, x):
        return x

    assert batched(max_size=3, timeout=1)(method) is method
    assert method(None, 5) == 5


def test_the_batched_methods_of_a_class_are_found():
    usual = Batching(64, 0.002)
    found = dict.fromkeys(("__call__", "wrong", "rows", "forget", "leave"), usual)
    assert batched_methods(Server) == {**found, "double": Batching(8, 0.5), "static": Batching(2, 0.002)}


def test_a_method_that_is_overridden_without_the_mark_is_an_ordinary_one():
    class Derived(Server):
        def double(self, x):
            return x

    assert batched_methods(Server).keys() - batched_methods(Derived).keys() == {"double"}


def test_the_mark_shows_through_other_decorators():
    class Model:
        @torch.no_grad()
        @batched
        def below(self, x):
            return x

        @batched
        @torch.no_grad()
        def above(self, x):
            return x

    assert batched_methods(Model).keys() == {"below", "above"}


def test_the_mark_travels_with_a_class_by_value():
    class Local:
        @batched(max_size=5)
        def act(self, x):
            return x

    assert batched_methods(pickle.loads(cloudpickle.dumps(Local))) == {"act": Batching(5, 0.002)}


def test_the_plain_class_gets_what_it_is_given():
    remote = parl_lite.remote_class(Server)
    assert remote._original().double(np.ones(3)).tolist() == [2, 2, 2]
    assert "double" in remote._methods


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"max_size": 0}, ValueError, "max_size is 0, it must be at least 1"),
        ({"max_size": 2.0}, TypeError, "max_size is 2.0, it must be a whole number"),
        ({"max_size": True}, TypeError, "max_size is True"),
        ({"timeout": -1}, ValueError, "timeout is -1 s"),
        ({"timeout": math.nan}, ValueError, "timeout is nan s"),
        ({"timeout": math.inf}, ValueError, "timeout is inf s"),
        ({"timeout": None}, TypeError, "timeout is None, it must be a number of seconds"),
        ({"size": 3}, TypeError, "size"),
    ],
)
def test_a_bad_setting_is_named_when_the_method_is_decorated(settings, error, said):
    with pytest.raises(error, match=said):
        batched(**settings)


async def later(self, x):
    return x


def one_by_one(self, x):
    yield x


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (staticmethod(len), "put @staticmethod above @batched"),
        (classmethod(print), "put @classmethod above @batched"),
        (Server, "Server is a type"),
        (64, "64 is a int"),
        (functools.partial(print), "is a partial"),
        (later, "later is a generator or async"),
        (one_by_one, "one_by_one is a generator or async"),
    ],
)
def test_only_plain_methods_can_be_batched(value, said):
    with pytest.raises(TypeError, match=said):
        batched(value)


# Stacking and splitting


def test_all_kinds_of_leaves_are_stacked_and_split():
    trees = [
        {
            "obs": np.full((2, 3), i, np.uint8),
            "state": (torch.full((4,), float(i)), [i, float(i), bool(i % 2), 1j * i]),
            "scalar": np.float32(i),
            "pair": Pair(np.array(i), None),
            "nothing": [],
        }
        for i in range(3)
    ]
    stacked = stack(trees)
    assert stacked["obs"].shape == (3, 2, 3) and stacked["obs"].dtype == np.uint8
    state, numbers = stacked["state"]
    assert torch.is_tensor(state) and state.shape == (3, 4)
    assert [one.dtype for one in numbers] == [np.int64, np.float64, np.bool_, np.complex128]
    assert stacked["scalar"].shape == (3,) and stacked["scalar"].dtype == np.float32
    assert type(stacked["pair"]) is Pair and stacked["pair"].value is None
    for i, tree in enumerate(split(stacked, 3)):
        assert signature(tree) == signature(trees[i])
        assert (tree["obs"] == i).all() and (tree["state"][0] == i).all()
        assert tree["state"][1] == trees[i]["state"][1]


def random_tree(dice, depth=3):
    kind = dice.choice(["dict", "list", "tuple", "array", "tensor", "number", "none"] if depth else ["array", "number"])
    children = range(dice.randint(0, 3))
    if kind == "dict":
        return {f"k{i}": random_tree(dice, depth - 1) for i in children}
    if kind in ("list", "tuple"):
        made = [random_tree(dice, depth - 1) for _ in children]
        return made if kind == "list" else tuple(made)
    shape = tuple(dice.randint(0, 3) for _ in range(dice.randint(0, 3)))
    array = np.zeros(shape, dice.choice(["f4", "i8", "?", "u1", "f2"]))
    return {"array": array, "tensor": torch.from_numpy(array), "number": dice.choice([1, 2.0, True])}.get(kind)


def filled(tree, dice):
    """Return a tree of the same signature with other values."""
    if isinstance(tree, dict):
        keys = list(tree)
        dice.shuffle(keys)  # the order of a dict does not matter
        return {key: filled(tree[key], dice) for key in keys}
    if isinstance(tree, list | tuple):
        return type(tree)(filled(child, dice) for child in tree)
    if isinstance(tree, np.ndarray):
        return np.random.default_rng(dice.randrange(1000)).integers(0, 2, tree.shape).astype(tree.dtype)
    if torch.is_tensor(tree):
        return torch.from_numpy(filled(tree.numpy(), dice))
    return None if tree is None else type(tree)(dice.randint(0, 1))


def in_numpy(tree):
    if isinstance(tree, dict):
        return {key: in_numpy(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(in_numpy, tree))
    return tree.numpy() if torch.is_tensor(tree) else tree


@pytest.mark.parametrize("seed", range(50))
def test_what_is_stacked_and_split_is_what_it_was(seed):
    dice = random.Random(seed)
    first = random_tree(dice)
    trees = [first, *(filled(first, dice) for _ in range(dice.randint(0, 4)))]
    assert len({signature(tree) for tree in trees}) == 1
    for tree, row in zip(trees, split(stack(trees), len(trees)), strict=True):
        assert signature(row) == signature(tree)
        np.testing.assert_equal(in_numpy(row), in_numpy(tree))


def test_stacked_arrays_are_new_memory():
    array = np.zeros(3)
    stack([array, array])[0] += 1
    assert array.sum() == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros(3), torch.zeros(3, dtype=torch.float64)),
        (np.zeros(3), [0.0, 0.0, 0.0]),
        ([1, 2], (1, 2)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": None}),
        (1, 1.0),
        (1, True),
        (None, 1),
        (Pair(1, 2), (1, 2)),
    ],
)
def test_what_differs_cannot_be_stacked(one, other):
    assert signature(one) != signature(other)


TWINS = [(1.0, np.float64(2)), (1.0, np.array(2.0)), ({"a": 1, "b": 2}, {"b": 1, "a": 2})]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_what_means_the_same_can_be_stacked(one, other):
    assert signature(one) == signature(other)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"obs": [np.zeros(2), "greedy"]}, r"args\['obs'\]\[1\] is a str, which cannot be stacked"),
        (object(), "args is a object"),
        ({1, 2}, "is a set"),
        (np.ma.masked_array([1.0]), "is a MaskedArray"),
        (2**70, "is the number 1180591620717411303424"),
    ],
)
def test_what_cannot_be_stacked_is_named(tree, said):
    with pytest.raises(ParlError, match=said):
        signature(tree, "args")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.zeros((4, 2)), r"the result is of shape \(4, 2\), and must be an array or tensor whose first axis is the batch of 3"),
        ({"value": torch.zeros(2)}, r"the result\['value'\] is of shape \(2,\)"),
        ((np.zeros(3), np.zeros(())), r"the result\[1\] is of shape \(\)"),
        ([1.0, 2.0, 3.0], r"the result\[0\] is a float"),
        ("text", "the result is a str"),
    ],
)
def test_a_result_that_cannot_be_split_is_named(result, said):
    with pytest.raises(ParlError, match=said):
        split(result, 3)


def test_a_result_of_none_is_nothing_for_everybody():
    assert split(None, 3) == [None, None, None]


def test_there_is_something_to_stack_or_not():
    assert has_leaves(((), {"a": [0]})) and not has_leaves(((), {"a": [None, {}]}))


# Groups


def test_groups_are_made_of_what_is_alike():
    assert alike("xxyxy", [1, 2, 3, 4, 5]) == [[0, 1, 3], [2, 4]]
    assert alike("", []) == []


def test_an_owner_is_never_overtaken_by_what_it_sent_later():
    assert alike("xyx", [1, 1, 1]) == [[0], [1], [2]]
    assert alike("xyxx", [1, 1, 1, 2]) == [[0, 3], [1], [2]]
    assert alike("xyxy", [1, 1, 1, 2]) == [[0], [1, 3], [2]]


@pytest.mark.parametrize("seed", range(50))
def test_groups_hold_each_once_are_alike_and_keep_the_order_of_owners(seed):
    dice = random.Random(seed)
    n = dice.randint(1, 20)
    signatures = [dice.choice("xyz") for _ in range(n)]
    owners = [dice.randint(0, 3) for _ in range(n)]
    groups = alike(signatures, owners)
    order = [i for group in groups for i in group]
    assert sorted(order) == list(range(n))
    assert all(len({signatures[i] for i in group}) == 1 and group == sorted(group) for group in groups)
    for owner in range(4):
        own = [i for i in order if owners[i] == owner]
        assert own == sorted(own)


# Calls run together


def run(server, name, *arguments):
    """Return the values or errors of calls of a method, one for each of `arguments`: (peer, args, kwargs)."""
    calls = [
        Call(Request(peer, frames.CALL, i, name, memoryview(b"")), args, kwargs)
        for i, (peer, args, kwargs) in enumerate(arguments)
    ]
    found = {request.number: outcome for request, outcome in call_together(server, f"Server.{name}", calls)}
    assert found.keys() == set(range(len(calls)))
    return [outcome.value if isinstance(outcome, Returned) else outcome.error for _, outcome in sorted(found.items())]


def test_the_method_runs_once_and_everybody_gets_its_row():
    server = Server()
    assert run(server, "double", *[(b"%d" % i, (float(i),), {}) for i in range(5)]) == [0, 2, 4, 6, 8]
    assert server.sizes == [5]


def test_keywords_are_stacked_and_their_order_does_not_matter():
    server = Server()
    kwargs = [{"x": np.array([1.0]), "scale": 2.0}, {"scale": 3.0, "x": np.array([1.0])}]
    rows = run(server, "double", (b"a", (), kwargs[0]), (b"b", (), kwargs[1]))
    assert [row.tolist() for row in rows] == [[2 * 2.0], [2 * 3.0]]
    assert server.sizes == [2]


def test_a_batch_of_one_has_the_first_axis_too():
    server = Server()
    (row,) = run(server, "double", (b"a", (np.ones((2, 2)),), {}))
    assert row.shape == (2, 2) and server.sizes == [1]


def test_calls_that_differ_run_in_batches_of_their_own():
    server = Server()
    values = [np.ones(2), np.ones(3), np.ones(2), 7]
    rows = run(server, "double", *[(b"%d" % i, (value,), {}) for i, value in enumerate(values)])
    assert [np.shape(row) for row in rows] == [(2,), (3,), (2,), ()]
    assert server.sizes == [2, 1, 1]


def test_one_callers_mistake_costs_nobody_else():
    server = Server()
    rows = run(server, "double", (b"a", (1.0,), {}), (b"b", ("text",), {}), (b"c", (), {}), (b"d", (2.0,), {}))
    assert (rows[0], rows[3], server.sizes) == (2.0, 4.0, [2])
    assert str(rows[1]).startswith("Server.double is batched: its args[0] is a str")
    assert "nothing to stack" in str(rows[2])
    assert all(isinstance(row, ParlError) and row.__traceback__ is None for row in rows[1:3])


def test_an_error_of_the_method_is_everybodys_of_the_batch_and_of_no_other():
    rows = run(Server(), "double", (b"a", (1.0,), {}), (b"b", (-1.0,), {}), (b"c", (np.ones(2),), {}))
    assert [type(row) for row in rows[:2]] == [ValueError, ValueError]
    assert rows[2].tolist() == [2, 2]


def test_a_result_of_the_wrong_size_names_method_expected_and_seen():
    first, second = run(Server(), "wrong", (b"a", (1,), {}), (b"b", (2,), {}))
    assert str(first) == str(second)
    assert "Server.wrong is batched: its result['value'] is of shape (1,)" in str(first)
    assert "first axis is the batch of 2" in str(first)


def test_a_result_without_rows_is_refused_and_none_is_not():
    assert "its result[0] is a float64" in str(run(Server(), "rows", (b"a", (1.0,), {}))[0])
    assert run(Server(), "forget", (b"a", (1.0,), {}), (b"b", (1.0,), {})) == [None, None]


def test_the_wish_to_end_is_passed_on():
    with pytest.raises(SystemExit):
        run(Server(), "leave", (b"a", (1,), {}))
