"""Checkpoint files: round trips, and what must be refused."""

from __future__ import annotations

import os
import pickle
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from parl_lite import checkpoint
from parl_lite.errors import SerializationError


def round_trip(tmp_path, state):
    checkpoint.save(tmp_path / "state.ckpt", state)
    return checkpoint.load(tmp_path / "state.ckpt")


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"a": [1, 2.5, True, "x", b"y", 1j], "b": ({"c"}, ()), 3: float("inf")},
        2**127 + 1,
        np.random.default_rng(1).bit_generator.state,
        random.Random(1).getstate(),
    ],
)
def test_plain_values_come_back_equal(tmp_path, state):
    assert round_trip(tmp_path, state) == state


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.arange(6, dtype=">f8").reshape(3, 2).T,
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.zeros((0, 3), dtype=bool),
        np.array(3.5, dtype=np.float16),
        np.array(["text"]),
    ],
)
def test_arrays_keep_dtype_shape_and_values(tmp_path, array):
    back = round_trip(tmp_path, {"array": array})["array"]
    assert (type(back), back.dtype, back.shape) == (np.ndarray, array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_numpy_scalars_stay_numpy_scalars(tmp_path):
    back = round_trip(tmp_path, np.float64(0.1))
    assert type(back) is np.float64
    assert back == 0.1


def test_tensors_and_the_versions_of_a_state_dict_come_back(tmp_path):
    state = nn.BatchNorm1d(2).to(torch.bfloat16).state_dict()
    back = round_trip(tmp_path, state)
    assert type(back) is OrderedDict
    assert back._metadata == state._metadata
    assert all(torch.equal(back[name], state[name]) and back[name].dtype == state[name].dtype for name in state)


def test_a_value_that_cannot_be_held_is_refused_by_its_place_and_no_file_is_left(tmp_path):
    with pytest.raises(SerializationError, match=r"state\['agent'\]\[1\] is a Linear"):
        checkpoint.save(tmp_path / "state.ckpt", {"agent": [1, nn.Linear(1, 1)]})
    with pytest.raises(SerializationError, match="dtype object"):
        checkpoint.save(tmp_path / "state.ckpt", np.array([None]))
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_midway_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.ckpt"
    checkpoint.save(path, 1)

    def write_half(document, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", write_half)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, 2)
    assert checkpoint.load(path) == 1
    assert os.listdir(tmp_path) == ["state.ckpt"]


def test_missing_parent_folders_are_made(tmp_path):
    checkpoint.save(tmp_path / "a" / "b.ckpt", 1)
    assert checkpoint.load(tmp_path / "a" / "b.ckpt") == 1


def test_a_file_cut_anywhere_is_refused_in_words(tmp_path):
    path = tmp_path / "state.ckpt"
    checkpoint.save(path, {"weights": torch.ones(100)})
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(SerializationError, match=rf"\({size} bytes\) cannot be read as a checkpoint"):
            checkpoint.load(path)


def test_foreign_files_are_refused_and_their_code_does_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / "foreign"
    for content in (pickle.dumps(Trap()), pickle.dumps({"a": 1}), b"\x89PNG not a checkpoint", b"text\n" * 100):
        path.write_bytes(content)
        with pytest.raises(SerializationError, match=r"foreign"):
            checkpoint.load(path)
    torch.save({"weights": torch.ones(1)}, path)
    with pytest.raises(SerializationError, match="not a checkpoint of parl_lite"):
        checkpoint.load(path)
    assert os.listdir(tmp_path) == ["foreign"]


def test_a_newer_format_is_refused_with_both_numbers(tmp_path):
    torch.save({"format": checkpoint.FORMAT, "version": 99, "state": 1}, tmp_path / "new.ckpt")
    with pytest.raises(SerializationError, match="format 99, but this parl_lite reads up to 1"):
        checkpoint.load(tmp_path / "new.ckpt")


def test_no_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none.ckpt")
