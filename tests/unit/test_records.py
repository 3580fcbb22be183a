"""What a run writes, shows and says."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

from parl_lite.agents.progress import Progress
from parl_lite.agents.records import RunRecord, summary_text


@dataclass(frozen=True)
class Settings:
    env: str = "Corridor"
    seed: int = 3


class Clock:
    """Goes on by a tenth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def batch(returns=(), n_rows: int = 10, n_invalid: int = 0) -> dict[str, np.ndarray]:
    episode_return = np.full((n_rows, 1), np.nan)
    episode_return[: len(returns), 0] = returns
    valid = np.arange(n_rows).reshape(n_rows, 1) >= n_invalid
    return {"episode_return": episode_return, "valid": valid}


def new_record(tmp_path, target=None) -> RunRecord:
    return RunRecord(tmp_path / "run", "impala", Settings(), target, Clock())


def test_the_summary_holds_the_figures_of_the_run(tmp_path):
    record = new_record(tmp_path, target=5.0)
    record.update(batch([1.0, 2.0]), lag=1.0, metrics={"value_loss": 0.5})
    record.update(batch([6.0], n_invalid=3), lag=3.0, metrics={"value_loss": 0.4})
    summary = record.finish("total_steps", n_actors=2)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    seconds, rate = summary.pop("seconds"), summary.pop("steps_per_second")
    assert rate == pytest.approx(17 / seconds, rel=0.01)
    assert summary == {
        "algo": "impala",
        "env": "Corridor",
        "seed": 3,
        "env_steps": 17,
        "return_mean": 3.0,
        "episodes": 3,
        "solved_at": None,
        "target": 5.0,
        "policy_lag_mean": 2.0,
        "updates": 2,
        "stopped": "total_steps",
        "n_actors": 2,
    }


def test_it_is_solved_when_a_hundred_episodes_in_a_row_have_the_target_as_their_mean(tmp_path):
    record = new_record(tmp_path, target=5.0)
    record.update(batch([9.0] * 99, n_rows=200), 0.0, {})
    assert not record.solved
    record.update(batch([0.0] * 50, n_rows=200), 0.0, {})
    assert not record.solved  # mean 4.5
    record.update(batch([5.5] * 100, n_rows=200), 0.0, {})
    record.update(batch([9.0] * 100, n_rows=200), 0.0, {})
    assert record.solved_at == 600


def test_progress_csv_holds_a_row_now_and_then_and_the_last(tmp_path):
    record = new_record(tmp_path)
    for number in range(20):
        record.update(batch([float(number)]), 1.0, {"entropy": 0.5})
    record.finish("interrupted")
    with open(tmp_path / "run" / "progress.csv") as file:
        rows = list(csv.DictReader(file))
    assert 2 < len(rows) < 20
    assert rows[-1]["env_steps"] == "200"
    assert rows[-1]["return_mean"] == "9.5"
    assert {row["entropy"] for row in rows} == {"0.5"}


def test_a_picture_is_drawn_and_settings_are_kept(tmp_path):
    record = new_record(tmp_path, target=1.0)
    record.update(batch([1.0]), 0.0, {})
    record.finish("total_steps")
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "run" / "settings.json").read_text()) == {
        "algo": "impala",
        "env": "Corridor",
        "seed": 3,
    }


def test_a_run_in_the_folder_of_another_leaves_nothing_of_it(tmp_path):
    record = new_record(tmp_path)
    record.update(batch([1.0]), 0.0, {})
    record.finish("total_steps")
    new_record(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["settings.json"]


def test_a_run_that_ended_before_its_first_update_still_has_a_summary(tmp_path):
    record = new_record(tmp_path, target=5.0)
    summary = record.finish("interrupted")
    assert summary["return_mean"] is None
    assert "interrupted" in summary_text(summary, record.logdir)


def test_lag_that_only_grows_is_warned_of(tmp_path, caplog):
    record = new_record(tmp_path)
    for lag in range(250):
        record.update(batch(), float(lag), {})
    assert caplog.messages == []
    for lag in range(250, 450):
        record.update(batch(), float(lag), {})
    assert caplog.messages == ["policy lag is 400 updates: do the weights reach the actors?"]


@pytest.mark.parametrize(
    ("stopped", "target", "solved_at", "words"),
    [
        ("solved", 5.0, 1234, "solved after 1,234 steps"),
        ("total_steps", 5.0, None, "not solved: out of steps"),
        ("total_steps", None, None, "seed 3: out of steps"),
        ("interrupted", 5.0, None, "interrupted"),
    ],
)
def test_the_text_says_how_it_ended_and_where_the_files_are(tmp_path, stopped, target, solved_at, words):
    record = new_record(tmp_path, target)
    record.update(batch([3.0]), 2.0, {})
    text = summary_text({**record.finish(stopped), "solved_at": solved_at}, record.logdir)
    assert words in text
    assert "mean return of the last 100 episodes 3.0" in text
    assert "policy lag 2.0 updates" in text
    assert f"files in {record.logdir}: curve.png, progress.csv, settings.json, summary.json" in text


# Progress


def shown(terminal: bool, times: list[float]) -> str:
    """Return what is written when figures are shown at these times."""
    output, moments = io.StringIO(), iter(times)
    console = Console(file=output, force_terminal=terminal, width=100, highlight=False)
    with Progress(console, clock=lambda: next(moments)) as progress:
        for number in range(len(times)):
            progress.show({"env_steps": 1000.0 * number, "return_mean": None if number == 0 else 21.34})
    return output.getvalue()


def test_without_a_terminal_a_plain_line_comes_every_few_seconds():
    assert shown(False, [0, 1, 4.9, 5.1, 6]) == "env_steps 0  return_mean -\nenv_steps 3,000  return_mean 21.3\n"


def test_on_a_terminal_one_line_is_rewritten():
    text = shown(True, [0, 0.1, 0.3])
    assert "env_steps 2,000  return_mean 21.3" in text
    assert "env_steps 1,000" not in text
    assert "\x1b[2K" in text  # erases the line before


def test_what_is_said_stays():
    output = io.StringIO()
    Progress(Console(file=output, force_terminal=False)).say("an actor is lost")
    assert output.getvalue() == "an actor is lost\n"
