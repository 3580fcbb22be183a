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
from parl_lite.agents.table import Table
from parl_lite.agents.updates import Update, update_of


@dataclass(frozen=True)
class Settings:
    env: str = "Corridor"
    seed: int = 3


class Clock:
    """Goes on by a fiftieth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.02
        return self.now


def update(returns=(), lag: float = 0.0, n_steps: int = 10, **metrics: float) -> Update:
    lengths = np.full(len(returns), 5)
    return Update(n_steps, np.array(returns), lengths, lag, metrics, learner_waited=0.01, actor_waited=1.0, actor_seconds=4.0)


def new_record(tmp_path, target=None, resumed=None) -> RunRecord:
    return RunRecord(tmp_path / "run", "impala", Settings(), target, Clock(), resumed)


def rows(tmp_path) -> list[dict[str, str]]:
    with open(tmp_path / "run" / "progress.csv") as file:
        return list(csv.DictReader(file))


def test_the_summary_holds_the_figures_of_the_run(tmp_path):
    record = new_record(tmp_path, target=5.0)
    record.update(update([1.0, 2.0], lag=1.0, value_loss=0.5))
    record.update(update([6.0], lag=3.0, n_steps=7, value_loss=0.4))
    summary = record.finish("total_steps", n_actors=2)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    seconds, rate = summary.pop("seconds"), summary.pop("steps_per_second")
    assert rate == pytest.approx(17 / seconds, rel=0.01)
    assert 0 < summary.pop("learner_idle_share") < 1
    assert summary == {
        "algo": "impala",
        "env": "Corridor",
        "seed": 3,
        "env_steps": 17,
        "return_mean": 3.0,
        "episodes": 3,
        "solved_at": None,
        "target": 5.0,
        "eval_return_mean": None,
        "policy_lag_mean": 2.0,
        "actor_wait_share": 0.25,
        "updates": 2,
        "stopped": "total_steps",
        "n_actors": 2,
    }


def test_it_is_solved_when_a_hundred_episodes_in_a_row_have_the_target_as_their_mean(tmp_path):
    record = new_record(tmp_path, target=5.0)
    record.update(update([9.0] * 99, n_steps=200))
    assert not record.solved
    record.update(update([0.0] * 50, n_steps=200))
    assert not record.solved  # mean 4.5
    record.update(update([5.5] * 100, n_steps=200))
    record.update(update([9.0] * 100, n_steps=200))
    assert record.solved_at == 600


def test_progress_csv_holds_a_row_now_and_then_and_the_last(tmp_path):
    record = new_record(tmp_path)
    for number in range(20):
        record.update(update([float(number)], entropy=0.5))
    record.finish("interrupted")
    written = rows(tmp_path)
    assert 2 < len(written) < 20
    assert (written[-1]["env_steps"], written[-1]["return_mean"], written[-1]["episode_length_mean"]) == ("200", "9.5", "5.0")
    assert {row["entropy"] for row in written} == {"0.5"}


def test_an_evaluation_stands_in_the_rows_that_follow_and_in_the_summary(tmp_path):
    record = new_record(tmp_path)
    record.update(update([1.0]))
    assert record.score == 1.0
    record.evaluated({"eval_return_mean": 7.0, "eval_return_std": 0.5})
    record.update(update([2.0]))
    assert record.score == 7.0
    assert record.finish("total_steps")["eval_return_mean"] == 7.0
    written = rows(tmp_path)
    assert [(row["eval_return_mean"], row["eval_return_std"]) for row in written][-2:] == [("7.0", "0.5")] * 2
    assert written[0]["eval_return_mean"] == ""


def test_time_in_a_pause_does_not_count(tmp_path):
    record = new_record(tmp_path)
    before = record.seconds
    with record.paused():
        for _ in range(100):
            record._clock()
    assert record.seconds - before == pytest.approx(0.04)  # the clock was read twice more


def test_other_writers_get_what_the_table_gets(tmp_path):
    record, heard = new_record(tmp_path), []
    record.writers.append(lambda env_steps, row: heard.append((env_steps, row["entropy"])))
    record.update(update(entropy=0.5))
    assert heard == [(10, 0.5)]


def test_a_resumed_run_counts_on_and_drops_the_rows_after_its_checkpoint(tmp_path):
    record = new_record(tmp_path, target=5.0)
    for _ in range(10):
        record.update(update([3.0], lag=1.0))
        record.write_row()
    state = record.state()
    for _ in range(5):
        record.update(update([9.0], lag=1.0))
        record.write_row()
    resumed = new_record(tmp_path, target=5.0, resumed=state)
    assert (resumed.n_updates, resumed.env_steps, resumed.episodes, resumed.return_mean) == (10, 100, 10, 3.0)
    assert resumed.seconds > state["seconds"]
    resumed.update(update([3.0], lag=1.0))
    assert resumed.finish("total_steps")["policy_lag_mean"] == 1.0
    updates = [int(row["updates"]) for row in rows(tmp_path)]
    assert updates == sorted(updates)
    assert max(updates) == 11


def test_a_row_that_was_cut_short_is_dropped(tmp_path):
    record = new_record(tmp_path)
    record.update(update([1.0]))
    state = record.state()
    with open(tmp_path / "run" / "progress.csv", "a") as file:
        file.write("20,1.")
    new_record(tmp_path, resumed=state)
    assert [row["env_steps"] for row in rows(tmp_path)] == ["10"]


def test_a_table_grows_by_columns(tmp_path):
    table = Table(tmp_path / "table.csv")
    table.append({"a": 1})
    table.append({"a": 2, "b": 3})
    Table(tmp_path / "table.csv").append({"b": 4})
    assert table.rows() == [{"a": "1", "b": ""}, {"a": "2", "b": "3"}, {"a": "", "b": "4"}]


def test_a_picture_is_drawn_and_settings_are_kept(tmp_path):
    record = new_record(tmp_path, target=1.0)
    record.update(update([1.0]))
    record.finish("total_steps")
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "run" / "settings.json").read_text()) == {
        "algo": "impala",
        "env": "Corridor",
        "seed": 3,
    }


def test_a_run_in_the_folder_of_another_leaves_nothing_of_it(tmp_path):
    record = new_record(tmp_path)
    record.update(update([1.0]))
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
        record.update(update(lag=lag))
    assert caplog.messages == []
    for lag in range(250, 450):
        record.update(update(lag=lag))
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
    record.update(update([3.0], lag=2.0))
    text = summary_text({**record.finish(stopped), "solved_at": solved_at}, record.logdir)
    assert words in text
    assert "mean return of the last 100 episodes 3.0" in text
    assert "policy lag 2.0 updates" in text
    assert f"files in {record.logdir}: curve.png, progress.csv, settings.json, summary.json" in text


def test_a_run_that_was_solved_goes_on_with_a_higher_target(tmp_path):
    record = new_record(tmp_path, target=5.0)
    record.update(update([5.0] * 100))
    assert record.solved
    assert new_record(tmp_path, target=5.0, resumed=record.state()).solved
    assert not new_record(tmp_path, target=6.0, resumed=record.state()).solved
    assert not new_record(tmp_path, resumed=record.state()).solved


def test_an_update_is_counted_from_the_columns_of_its_rollouts():
    ended = np.array([[np.nan, 3.0], [5.0, np.nan]])
    length = np.array([[0, 4], [6, 0]])
    valid = np.array([[True, True], [True, False]])
    rollout = {"episode_return": ended, "episode_length": length, "valid": valid, "version": np.array(7)}
    timed = {**rollout, "version": np.array(9), "actor_waited": 0.5, "actor_seconds": 2.0}
    found = update_of([rollout, timed], 10, {"loss": 1.0}, learner_waited=0.25)
    assert found.episode_returns.tolist() == [3.0, 5.0, 3.0, 5.0]
    assert found.episode_lengths.tolist() == [4, 6, 4, 6]
    counted = Update(6, None, None, 2.0, {"loss": 1.0}, 0.25, 0.5, 2.0)
    assert found._replace(episode_returns=None, episode_lengths=None) == counted


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
