"""A run from beginning to end without a cluster: checkpoints, resume bit by bit, evaluation, Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import parl_lite
from parl_lite import checkpoint, snapshot
from parl_lite.agents.impala import ENTRY
from parl_lite.agents.interrupts import Interrupt
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.run_folder import RunFolder
from parl_lite.agents.training import run
from parl_lite.agents.updates import update_of
from parl_lite.agents.video import filmed_envs
from parl_lite.agents.wirings.wiring import Wiring
from parl_lite.errors import ParlError

SMALL = {"envs_per_actor": 2, "unroll_length": 8, "hidden_size": 8, "eval_episodes": 0}


class InProcess(Wiring):
    """Plays the rollout of each version in this process: the same one in every run."""

    interrupt_at = -1

    def update(self):
        worker = RolloutWorker(
            self.plan.make_envs, self.plan.make_model, unroll_length=self.plan.settings.unroll_length, seed=7, rank=self.version
        )
        worker.set_weights(self.version, self.learner.get_weights())
        rollout = worker.sample()
        metrics = self.learner.learn(self.learner.prepare([rollout]))
        self.version += 1
        if self.version == type(self).interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        return update_of([rollout], self.version - 1, metrics)

    @property
    def n_lost(self) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch) -> None:
    monkeypatch.setattr(parl_lite, "connect", lambda *args, **kwargs: None)
    monkeypatch.setattr(parl_lite, "disconnect", lambda: None)
    monkeypatch.setattr(RolloutWorker, "__init__", _without_global_seeds(RolloutWorker.__init__))


def _without_global_seeds(construct: Any) -> Any:
    """Actors are processes of their own: here, they must leave the learner's random streams alone."""

    def construct_apart(self, *args: Any, **kwargs: Any) -> None:
        state = snapshot.capture_randomness()
        construct(self, *args, **kwargs)
        snapshot.restore_randomness(state)

    return construct_apart


def train(
    logdir: Path, n_updates: int, wiring: type = InProcess, entry=ENTRY, how: dict[str, Any] | None = None, **settings: Any
):
    """Train for some updates of at most 16 steps; the schedules are those of 20."""
    made = entry.settings(**{**SMALL, "total_steps": 320, **settings})
    stops = type("Stops", (wiring,), {"interrupt_at": n_updates})
    return run(replace(entry, wiring=stops), made, logdir=logdir, **{"tensorboard": False, **(how or {})})


def algorithm_state(logdir: Path) -> dict[str, Any]:
    return RunFolder(logdir).newest()["algorithm"]


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert_equal(ours[name], theirs[name])
    elif isinstance(ours, list):
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)


def test_a_run_leaves_its_files_and_a_summary(tmp_path):
    summary = train(tmp_path, -1, eval_episodes=3)
    assert summary["stopped"] == "total_steps"
    assert summary["env_steps"] >= 320
    assert summary["eval_return_mean"] > 5
    assert (summary["n_actors"], summary["actors_lost"], summary["learners_lost"]) == (2, 0, 0)
    names = {"agent.ckpt", "checkpoints", "curve.png", "progress.csv", "settings.json", "summary.json"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_run_that_was_interrupted_and_resumed_is_the_same_bit_by_bit(tmp_path):
    whole = train(tmp_path / "whole", -1)
    first = train(tmp_path / "parts", 7)
    assert (first["stopped"], first["updates"]) == ("interrupted", 7)
    both = train(tmp_path / "parts", -1, how={"resume": True})
    same = ("env_steps", "updates", "episodes", "return_mean", "policy_lag_mean", "stopped")
    assert [both[name] for name in same] == [whole[name] for name in same]
    assert_equal(algorithm_state(tmp_path / "parts"), algorithm_state(tmp_path / "whole"))
    with open(tmp_path / "parts" / "progress.csv") as file:
        updates = [int(row["updates"]) for row in csv.DictReader(file)]
    assert updates == sorted(updates)


def test_a_run_with_other_settings_is_not_resumed_and_they_are_named(tmp_path):
    train(tmp_path, 3)
    words = (
        r"cannot be resumed with other settings: gamma was 0.99 and is 0.9, seed was 1 and is 2\. Leave these out, or "
        r"start anew; only total_steps, checkpoint_interval, .* and prefetch may change\.$"
    )
    with pytest.raises(ParlError, match=words):
        train(tmp_path, 3, how={"resume": True}, seed=2, gamma=0.9)
    train(tmp_path, -1, how={"resume": True}, eval_interval=1000)


def test_a_run_that_has_ended_goes_on_with_more_steps_and_keeps_their_number(tmp_path):
    assert train(tmp_path, -1)["updates"] == 20
    longer = train(tmp_path, 25, how={"resume": True}, total_steps=640)
    assert (longer["stopped"], longer["updates"]) == ("interrupted", 25)
    assert json.loads((tmp_path / "settings.json").read_text())["total_steps"] == 640
    assert RunFolder(tmp_path).newest()["settings"]["total_steps"] == 640
    group = algorithm_state(tmp_path)["optimizer"]["param_groups"][0]
    part_left = group["lr"] / ENTRY.settings().learning_rate
    assert part_left == pytest.approx(1 - 24 * 16 / 640, abs=0.05)  # with the steps of the first part alone it was zero here
    assert train(tmp_path, -1, how={"resume": True}, total_steps=640)["updates"] == 40


def test_a_run_that_was_cut_short_is_not_replaced_by_accident(tmp_path):
    train(tmp_path, 3)
    (tmp_path / "summary.json").unlink()  # as if it had been killed
    with pytest.raises(ParlError, match="has a run that was cut short: go on with --resume"):
        train(tmp_path, 3)
    assert train(tmp_path, 5, how={"overwrite": True})["updates"] == 5
    assert train(tmp_path, 4)["updates"] == 4  # that one had ended
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("0*")) == ["0000000004.ckpt"]


def test_an_algorithm_that_cannot_choose_such_actions_is_refused_before_anything_is_written(tmp_path):
    entry = replace(ENTRY, actions=frozenset({"discrete"}))
    with pytest.raises(ParlError, match="impala chooses discrete actions, and those of Pendulum-v1 are box: choose one of"):
        train(tmp_path / "run", 3, entry=entry, env="Pendulum-v1")
    assert not (tmp_path / "run").exists()


def test_evaluations_come_at_their_intervals_and_train_nothing(tmp_path):
    train(tmp_path / "without", -1)
    train(tmp_path / "with", -1, eval_interval=100, eval_episodes=4)
    assert_equal(algorithm_state(tmp_path / "with"), algorithm_state(tmp_path / "without"))
    with open(tmp_path / "with" / "progress.csv") as file:
        evaluated = [int(row["env_steps"]) for row in csv.DictReader(file) if row["eval_return_mean"]]
    assert 100 <= evaluated[0] < 132


def test_figures_go_to_tensorboard_too(tmp_path):
    train(tmp_path, 3, how={"tensorboard": True})
    assert [path.name.split(".")[0] for path in (tmp_path / "tensorboard").iterdir()] == ["events"]


def test_an_episode_is_filmed_at_the_end(tmp_path):
    pytest.importorskip("moviepy", reason="videos need moviepy: pip install 'parl_lite[video]'")
    train(tmp_path, 3, how={"video": True})
    (film,) = (tmp_path / "video").glob("*.mp4")
    assert film.stat().st_size > 1000


def test_without_moviepy_there_is_no_video_but_a_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "moviepy", None)
    assert train(tmp_path, 3, how={"video": True})["updates"] == 3
    assert "no video: a video needs moviepy: pip install 'parl_lite[video]'" in caplog.text


def test_what_cannot_be_rendered_is_not_filmed_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "moviepy", ModuleType("moviepy"))  # so that it need not be installed
    with pytest.raises(ParlError, match="NoSuchEnv-v0 cannot be rendered: NameNotFound"):
        filmed_envs(ENTRY.settings(env="NoSuchEnv-v0"), tmp_path)()


# The folder


def test_the_last_two_checkpoints_and_the_best_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    for n_updates, score in [(10, None), (20, 3.0), (30, 5.0), (100, 4.0)]:
        folder.save(n_updates, {"n": n_updates}, score)
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["0000000030.ckpt", "0000000100.ckpt", "best.ckpt"]
    assert RunFolder(tmp_path).newest()["n"] == 100
    assert checkpoint.load(folder.checkpoints / "best.ckpt")["n"] == 30


def test_the_best_score_is_remembered_by_a_resumed_run(tmp_path):
    RunFolder(tmp_path).save(10, {"n": 10}, 5.0)
    resumed = RunFolder(tmp_path)
    resumed.newest()
    resumed.save(20, {"n": 20}, 4.0)
    assert checkpoint.load(resumed.checkpoints / "best.ckpt")["n"] == 10


def test_a_checkpoint_that_cannot_be_read_is_passed_over(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    folder.save(10, {"n": 10}, None)
    folder.save(20, {"n": 20}, None)
    newest = folder.checkpoints / "0000000020.ckpt"
    newest.write_bytes(newest.read_bytes()[:100])
    assert folder.newest()["n"] == 10
    assert "a checkpoint is passed over" in caplog.text


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(ParlError, match="has no checkpoint to go on from: start the run without --resume"):
        RunFolder(tmp_path).newest()
    with pytest.raises(ParlError, match="has no run to go on with"):
        RunFolder(tmp_path).check_same("impala", ENTRY.settings())


def test_settings_are_kept_beside_the_checkpoints(tmp_path):
    train(tmp_path, 1)
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert (saved["algo"], saved["total_steps"], saved["unroll_length"]) == ("impala", 320, 8)


# Ctrl-C


def test_the_first_ctrl_c_is_noted_and_the_second_raised():
    with pytest.raises(KeyboardInterrupt):
        with Interrupt() as interrupt:
            assert not interrupt.requested
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupt.requested
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
