"""Numeric libraries in a job use as many threads as it has CPUs, unless the user said otherwise."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from parl_lite.cluster import threads


@pytest.mark.parametrize("name", threads.VARIABLES)
def test_any_of_the_variables_is_the_users_choice(name: str) -> None:
    assert threads.set_by_user({name: "3"})


def test_without_the_variables_the_user_has_not_chosen() -> None:
    assert not threads.set_by_user({"PATH": "/bin"})


def test_a_zygote_has_one_thread_for_each_library_unless_the_user_chose() -> None:
    expected = dict.fromkeys(threads.VARIABLES, "1") | {"MKL_NUM_THREADS": "3"}
    assert threads.defaults({"MKL_NUM_THREADS": "3", "PATH": "/bin"}) == expected


@pytest.mark.parametrize("n_threads", [1, 2])
def test_libraries_that_are_loaded_get_the_limit(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=asked.append))
    np.dot(np.eye(2), np.eye(2))
    with ThreadpoolController().limit(limits=None):
        threads.limit(n_threads)
        limits = {pool["num_threads"] for pool in ThreadpoolController().info()}
    assert asked == [n_threads]
    assert limits == {min(n_threads, os.cpu_count() or 1)}


def test_torch_is_not_loaded_for_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # so that importing it would fail
    with ThreadpoolController().limit(limits=1):
        threads.limit(1)
