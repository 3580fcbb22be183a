"""Ape-X on a real cluster: an actor, a shard and the learner are killed, and the run goes on; nothing is inserted twice."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import alive, until

from parl_lite.agent import Agent
from parl_lite.agents import registry
from parl_lite.agents.training import plan_of, spaces_of_env
from parl_lite.agents.wirings.replay import Replay
from parl_lite.agents.wirings.wiring import LocalLearner

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_actors": 2,
    "hidden_size": 8,
    "head_size": 8,
    "batch_size": 32,
    "unroll_length": 10,
    "learning_starts": 100,
    "replay_capacity": 10_000,
    "samples_per_insert": 2.0,
    "publish_interval": 5,
}
COMMAND = [sys.executable, "-m", "parl_lite.agents", "apex"]


@pytest.fixture(autouse=True, scope="module")
def preloaded(nothing_left: Path) -> Iterator[None]:
    """Jobs share torch here: there are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARL_LITE_PRELOAD")
        yield


def wiring_of(name: str = "apex", **settings: Any) -> Replay:
    entry = registry.load(name)
    made = entry.settings(**{**SMALL, **settings})
    spaces = spaces_of_env(made)
    agent = Agent(entry.algorithm(entry.make_model(made, spaces), made))
    wiring: Any = entry.wiring(plan_of(entry, made, spaces), LocalLearner(agent))
    return wiring


def kill(actor: Any) -> None:
    pid = int(actor._parl_link.address.label.split()[-1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 30, f"process {pid} is gone")


def learn(wiring: Replay, n: int) -> list[Any]:
    """Make n updates; return what came of them."""
    updates, last = [], wiring.version + n
    deadline = time.monotonic() + 60
    while wiring.version < last:
        updates.append(wiring.update())
        assert time.monotonic() < deadline, wiring.memory.figures()
    return updates


def assert_inserted_once(wiring: Replay, updates: list[Any]) -> None:
    """Check that the shards have what the actors say, and rollouts of which they have not said it yet, no more."""
    told = sum(update.env_steps for update in updates)
    inserted = wiring.memory.figures()["inserted"]
    assert told <= inserted <= told + 2 * 3 * 10


@pytest.mark.parametrize("n_shards", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_run_goes_on_when_an_actor_is_killed(cluster, n_shards):
    with wiring_of(n_shards=n_shards) as wiring:
        updates = learn(wiring, 20)
        assert_inserted_once(wiring, updates)
        kill(wiring.players.pool.actors[0])
        while not wiring.n_lost or len(wiring.players.pool) < 2:
            updates += learn(wiring, 1)
        updates += learn(wiring, 40)
        assert wiring.n_lost == 1
        assert_inserted_once(wiring, updates)
        figures = wiring.figures()
    assert figures["replay_consumed"] >= 60 * 32
    assert figures["replay_consumed"] <= 2 * figures["replay_inserted"]
    assert sum(len(update.episode_returns) for update in updates) > 0
    assert all(0 <= update.lag <= 60 for update in updates)
    assert all("priority" not in update.metrics and "loss" in update.metrics for update in updates if update.n_updates)


@pytest.mark.parametrize("n_shards", [1])
def test_a_run_goes_on_when_a_shard_is_killed(cluster, n_shards):
    with wiring_of(n_shards=n_shards) as wiring:
        learn(wiring, 10)
        kill(wiring.memory.shards[0])
        updates = learn(wiring, 30)
        assert wiring.figures()["shards_lost"] == 1
        assert wiring.n_lost == 0
        assert len(wiring.memory.shards) == n_shards
    assert sum(update.env_steps for update in updates) > 0


def test_a_lost_shard_goes_on_from_what_was_saved(cluster, tmp_path):
    with wiring_of(n_shards=1, save_replay=True) as wiring:
        object.__setattr__(wiring.plan, "folder", str(tmp_path))
        learn(wiring, 10)
        saved = wiring.save()["replay"]
        inserted = json.loads((tmp_path / "replay" / saved / "shard-0" / "replay.json").read_text())["state"]["n_inserted"]
        kill(wiring.memory.shards[0])
        learn(wiring, 10)
        assert wiring.memory.figures()["inserted"] >= inserted >= 100


@pytest.mark.slow
def test_r2d2_and_agent57_learn_from_sequences_of_actors(cluster):
    sizes = {"sequence_length": 10, "burn_in": 5, "overlap": 0, "lstm_size": 8, "batch_size": 4, "samples_per_insert": 1.0}
    for name, more in (("r2d2", {}), ("agent57", {"n_policies": 3})):
        with wiring_of(name, n_shards=1, **sizes, **more) as wiring:
            updates = learn(wiring, 5)
            assert wiring.memory.figures()["inserted"] >= 20
        assert sum(update.env_steps for update in updates) >= 100


def column(logdir: Path, name: str) -> list[int]:
    with open(logdir / "progress.csv") as file:
        return [int(row[name]) for row in csv.DictReader(file) if row[name]]


def test_after_kill_9_of_the_learner_a_run_goes_on_with_its_replay(nothing_left, tmp_path):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    more = ["--n-shards=2", "--save-replay", "--checkpoint-interval=0.3", "--total-steps=1000000", "--target=1e9"]
    logdir = ["--logdir", str(tmp_path), "--no-tensorboard"]
    with subprocess.Popen([*COMMAND, *options, *more, *logdir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        until(lambda: len(list(tmp_path.glob("checkpoints/0*.ckpt"))) == 2, 60, "two checkpoints are there")
        process.send_signal(signal.SIGKILL)
    reached = int(max(tmp_path.glob("checkpoints/0*.ckpt")).stem)
    arguments = [*COMMAND, *logdir, "--resume", "--target=1e9", "--eval-episodes=0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        until(lambda: column(tmp_path, "updates")[-1] > reached + 20, 60, "it has gone on")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT, output
    assert f"go on with: python -m parl_lite.agents apex --logdir={tmp_path} --resume --target=1000000000.0\n" in output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["updates"] > reached + 20
    assert summary["replay_consumed"] >= 32 * summary["updates"]  # of both parts: the saved shards went on
    assert summary["replay_consumed"] <= 2 * summary["replay_inserted"]
    # Steps are told after they were inserted: those that were not told yet when a save was made make the difference
    assert summary["env_steps"] <= summary["replay_inserted"] <= summary["env_steps"] + 2 * 2 * 3 * 10
