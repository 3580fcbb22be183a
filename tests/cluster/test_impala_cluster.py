"""IMPALA on real actors: the example, its end by Ctrl-C, lost actors, versions of weights, random streams."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import parl_lite
from parl_lite.agents.envs import make_envs, spaces_of
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import RolloutWorker

NETWORK = NetworkSettings(hidden_size=4)
EXAMPLE = Path(__file__).parents[2] / "examples" / "cartpole_impala.py"


@pytest.fixture(autouse=True, scope="module")
def preloaded(nothing_left: Path) -> Iterator[None]:
    """Jobs share torch here: there are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARL_LITE_PRELOAD")
        yield


@parl_lite.remote_class
class Worker(RolloutWorker):
    """A rollout worker that can be watched."""

    def pid(self) -> int:
        return os.getpid()

    def draws(self) -> tuple[float, ...]:
        return random.random(), np.random.rand(), torch.rand(1).item()


def new_worker(rank: int) -> Worker:
    return Worker(partial(make_envs, "CartPole-v1", 2), partial(actor_critic, NETWORK), unroll_length=8, seed=1, rank=rank)


def weights() -> dict[str, np.ndarray]:
    return actor_critic(NETWORK, spaces_of(make_envs("CartPole-v1", 1))).get_weights()


def command(logdir: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLE), "--logdir", str(logdir), *arguments]


def test_the_example_trains_and_writes_what_it_promises(nothing_left, tmp_path):
    done = subprocess.run(
        command(tmp_path / "run", "--total-steps", "6000", "--require-target"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stderr
    assert "not solved: out of steps" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["env_steps"] >= 6000
    assert summary["return_mean"] > 15
    assert summary["policy_lag_mean"] > 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "agent.ckpt",
        "curve.png",
        "progress.csv",
        "settings.json",
        "summary.json",
    }


def test_the_command_line_does_the_same(nothing_left, tmp_path):
    arguments = ["impala", "--total-steps", "3000", "--seed", "5", "--n-actors", "1", "--logdir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "parl_lite.agents", *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["algo"], summary["env"], summary["seed"], summary["solved_at"]) == (
        "impala",
        "CartPole-v1",
        5,
        None,
    )


def test_ctrl_c_ends_the_run_with_its_summary_written(nothing_left, tmp_path):
    process = subprocess.Popen(command(tmp_path, "--target", "inf"), stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        while "env_steps" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert "interrupted" in output
    assert json.loads((tmp_path / "summary.json").read_text())["stopped"] == "interrupted"


def test_rollouts_carry_the_version_of_the_weights_sent_before_them(fresh_cluster):
    worker, content = new_worker(0), weights()
    futures = []
    for version in range(50):
        worker.futures.set_weights(version, content)
        futures.append(worker.futures.sample())
    assert [int(future.result()["version"]) for future in reversed(futures)] == list(reversed(range(50)))


def test_actors_of_one_seed_draw_different_numbers_and_the_same_in_each_run(fresh_cluster):
    def draws() -> list[tuple[float, ...]]:
        workers = [new_worker(rank) for rank in range(2)]
        drawn = [worker.draws() for worker in workers]
        for worker in workers:
            worker.destroy()
        return drawn

    first, again = draws(), draws()
    assert first == again
    assert len({number for numbers in first for number in numbers}) == 6


def test_an_error_in_an_environment_names_it_in_the_learner(fresh_cluster):
    with pytest.raises(parl_lite.ParlError, match=r"environment 0 \(NoSuchEnv-v0\) could not be made"):
        Worker(partial(make_envs, "NoSuchEnv-v0", 2), partial(actor_critic, NETWORK), unroll_length=8, seed=1, rank=0)
