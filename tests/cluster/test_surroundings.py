"""What an actor finds around it: random numbers of its own, untouched logging, its GPUs, values as they were sent."""

from __future__ import annotations

import logging
import os
import random
import sys
from typing import Any

import numpy as np
import pytest

import parl_lite
from parl_lite import client

ONE = np.float32(1)


@parl_lite.remote_class
class Dice:
    """Throws all kinds of dice."""

    def __init__(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def throw(self):
        import torch

        return random.random(), np.random.rand(), np.random.default_rng().random(), torch.rand(1).item()

    def throw_own(self):
        return self.rng.random()


@parl_lite.remote_class
class Witness:
    """Tells what it sees."""

    def loggers(self):
        root = logging.getLogger()
        before = [type(handler).__name__ for handler in root.handlers], root.level
        logging.getLogger("a.third.party").debug("silent")
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        logging.getLogger("mine").info("said once")
        return before, [name for name in logging.root.manager.loggerDict if name.startswith("parl_lite")]

    def environment(self, name):
        return os.environ.get(name)

    def echo(self, *args, **kwargs):
        return args[0] if args else kwargs["v"]

    def default(self, v=ONE):
        return v

    def crash(self):
        os._exit(1)


# --- random numbers ---------------------------------------------------------------------------------------


def test_actors_throw_different_dice(cluster):
    random.seed(0)
    np.random.seed(0)
    throws = [Dice().throw() for _ in range(3)]
    assert len({number for throw in throws for number in throw}) == 12


def test_actors_with_a_seed_repeat_themselves(cluster):
    def run():
        return [Dice(np.random.SeedSequence(7, spawn_key=(rank,))).throw_own() for rank in range(2)]

    first, again = run(), run()
    assert first == again
    assert first[0] != first[1]


# --- logging ----------------------------------------------------------------------------------------------


def test_logging_in_an_actor_is_the_users(cluster):
    witness = Witness()
    before, ours = witness.loggers()
    assert before == ([], logging.WARNING)
    assert [name for name in ours if logging.getLogger(name).handlers] == []
    with pytest.raises(parl_lite.ActorLostError) as info:
        witness.crash()
    assert str(info.value).count("said once") == 1
    assert "silent" not in str(info.value)


def test_connecting_leaves_the_loggers_of_this_process_alone(cluster):
    assert logging.getLogger("parl_lite").handlers == []
    assert logging.getLogger("parl_lite").level == logging.NOTSET


# --- values -----------------------------------------------------------------------------------------------


VALUES = {
    "text array": np.array(["a", "bcdef"], "<U5"),
    "bytes array": np.array([b"abc"], "S3"),
    "object array": np.array([None, "a", {}], object),
    "structured": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "record array": np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "bool": np.array([True, False]),
    "times": np.array(["2020-01-01"], "datetime64[ns]"),
    "half": np.zeros(2, np.float16),
    "big-endian": np.arange(3, dtype=">f4"),
    "0-d": np.array(3.0),
    "empty": np.zeros((0, 3)),
    "float32": np.float32(1),
    "int8": np.int8(1),
    "bool_": np.bool_(True),
    "large int": 2**70,
    "slice": slice(np.int32(2), None),
    "masked": np.ma.masked_array([1, 2], [True, False]),
    "None": None,
    "large": np.arange(300_000, dtype=np.float32).reshape(3, -1),
}


@pytest.fixture(scope="module")
def witness(cluster):
    actor = Witness()
    yield actor
    actor.destroy()


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.all(a == b) or a.size == 0)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@pytest.mark.parametrize("name", VALUES)
def test_values_keep_their_type_through_an_actor(witness, name):
    value = VALUES[name]
    assert same(witness.echo(value), value)
    assert same(witness.echo([value]), [value])
    assert same(witness.echo({"k": value}), {"k": value})
    assert same(witness.echo(v=value), value)
    assert same(witness.echo(value, 1, 2), value)


def test_defaults_keep_their_type(witness):
    assert type(witness.default()) is np.float32


def test_modules_and_parameters_keep_what_makes_them_train(witness):
    import torch

    parameter = torch.nn.Parameter(torch.ones(3))
    again = witness.echo(parameter)
    assert type(again) is torch.nn.Parameter and again.requires_grad
    layer = witness.echo(torch.nn.Linear(2, 2))
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None
    with pytest.raises(parl_lite.SerializationError, match="detach"):
        witness.echo(parameter * 2)


def test_tied_weights_stay_tied(witness):
    import torch

    tied = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    again = witness.echo(tied)
    assert again[0].weight is again[1].weight
    weight = torch.ones(2000)
    first, second = witness.echo([weight, weight])
    first[0] = 5
    assert second[0] == 5


def test_an_argument_is_fixed_when_the_call_is_made(witness):
    value = np.zeros(200_000)
    future = witness.futures.echo(value)
    value[:] = 1
    assert future.result().sum() == 0


# --- GPUs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, "3,5"])
def test_actors_see_their_own_gpus_only(nothing_left, monkeypatch, mask):
    parl_lite.disconnect()
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)  # of the host, which counts its GPUs from 0 behind it
    monkeypatch.setenv("PARL_LITE_NOTICE_INTERVAL", "0.1")
    parl_lite.connect(n_cpu=4, gpu=[3, 5] if mask is None else [0, 1], log_to_driver=False)
    seen = Witness.options(n_gpu=1)
    first, second, none = seen(), seen(), Witness()
    variables = [actor.environment("CUDA_VISIBLE_DEVICES") for actor in (first, second, none)]
    assert variables == ["3", "5", ""]
    with monkeypatch.context() as patch, pytest.raises(parl_lite.ResourceError, match="GPU"):
        patch.setattr(client.current(), "timeout", 1.5)
        seen()
    with pytest.raises(parl_lite.ActorLostError):
        second.crash()
    assert seen().environment("CUDA_VISIBLE_DEVICES") == "5"
    parl_lite.disconnect()
