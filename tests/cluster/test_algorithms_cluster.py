"""Algorithms with wirings of their own, from the command line's `run` to the summary, on real actors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parl_lite.agents.registry import load
from parl_lite.agents.training import run

SMALL = {"n_actors": 2, "envs_per_actor": 4, "hidden_size": 16, "lstm_size": 8, "total_steps": 2000, "eval_episodes": 1}


@pytest.fixture(autouse=True)
def preloaded(nothing_left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs share torch here: there are many."""
    monkeypatch.delenv("PARL_LITE_PRELOAD")


@pytest.mark.parametrize("name", ["appo", "a3c", "ga3c", "seed_rl"])
def test_it_learns_on_real_actors(tmp_path, name):
    entry = load(name)
    summary = run(entry, entry.settings(**SMALL), logdir=tmp_path, tensorboard=False)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["stopped"], summary["actors_lost"]) == ("total_steps", 0)
    assert summary["env_steps"] >= 2000
    assert summary["return_mean"] > 10
    assert summary["eval_return_mean"] > 5
    assert 0 <= summary["policy_lag_mean"] < summary["updates"]  # how late one is, nobody can promise
