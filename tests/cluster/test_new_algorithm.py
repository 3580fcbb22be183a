"""The algorithm of docs/new_algorithm.md runs as it stands there, from a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "new_algorithm.md"


def test_the_file_of_the_walk_through_is_an_algorithm(nothing_left, tmp_path):
    (tmp_path / "reinforce.py").write_text(DOCUMENT.read_text().split("```python\n")[1].split("```")[0])
    arguments = ["reinforce:ENTRY", "--total-steps", "20000", "--n-actors", "1", "--logdir", "run", "--eval-episodes", "2"]
    command = [sys.executable, "-m", "parl_lite.agents", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "tuned for CartPole-v1: reward_scale 0.1, learning_rate 0.01" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["algo"], summary["policy_lag_mean"]) == ("reinforce", 0.0)
    assert summary["return_mean"] > 25  # chance is 22
