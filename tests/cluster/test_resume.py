"""A run whose learner is killed with SIGKILL goes on from its newest checkpoint, and ends as if nothing had been."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

from conftest import until

COMMAND = [sys.executable, "-m", "parl_lite.agents", "impala"]
SMALL = ["--n-actors", "1", "--envs-per-actor", "4", "--hidden-size", "8", "--target", "1e9", "--eval-episodes", "0"]


def column(logdir: Path, name: str) -> list[int]:
    with open(logdir / "progress.csv") as file:
        return [int(row[name]) for row in csv.DictReader(file)]


def test_after_kill_9_a_run_goes_on_and_its_counters_add_up(nothing_left, tmp_path):
    """The steps of the first part that came after its last checkpoint are played again, and counted once."""
    logdir = ["--logdir", str(tmp_path)]
    arguments = [*SMALL, *logdir, "--total-steps", "1000000", "--checkpoint-interval", "0.3", "--seed", "5"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        until(lambda: len(list(tmp_path.glob("checkpoints/0*.ckpt"))) == 2, 60, "two checkpoints are there")
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "summary.json").exists()
    reached = int(max(tmp_path.glob("checkpoints/0*.ckpt")).stem)
    further = max(reached, *column(tmp_path, "updates")) + 20

    with subprocess.Popen([*COMMAND, *logdir, "--resume", "--target", "1e9"], stdout=subprocess.PIPE, text=True) as process:
        until(lambda: max(column(tmp_path, "updates"), default=0) > further, 60, "it has gone on")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "interrupted" in output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["updates"] > further
    assert (summary["seed"], summary["n_actors"]) == (5, 1)
    updates, env_steps = column(tmp_path, "updates"), column(tmp_path, "env_steps")
    assert updates == sorted(updates)
    assert env_steps == sorted(env_steps)
    assert env_steps[-1] == summary["env_steps"]
    assert 0.9 * 32 * 4 < summary["env_steps"] / summary["updates"] <= 32 * 4  # as many steps as rollouts: each is counted once
