"""Learning from a replay in one process: it can be repeated and resumed bit by bit, counts are right, actors explore as told."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from learning_envs import Aim, Corridor, Recall
from value_loops import assert_equal

from parl_lite.agent import Agent
from parl_lite.agents import dqn, records, registry
from parl_lite.agents.__main__ import main
from parl_lite.agents.acting import epsilon_at
from parl_lite.agents.env_settings import EnvSettings, make_envs_from
from parl_lite.agents.env_snapshot import CannotSave, capture_envs, restore_envs
from parl_lite.agents.player import Player, step_priorities
from parl_lite.agents.replay import ReplayShard
from parl_lite.agents.run_folder import RunFolder
from parl_lite.agents.seeds import sequence_of
from parl_lite.agents.training import run, spaces_of_env
from parl_lite.agents.wirings.memory import LocalReplay, limiter_of, make_buffer
from parl_lite.agents.wirings.replay import Replay

SMALL: dict[str, Any] = {
    "n_actors": 0,
    "n_shards": 0,
    "hidden_size": 8,
    "batch_size": 8,
    "unroll_length": 4,
    "learning_starts": 40,
    "replay_capacity": 150,
    "total_steps": 240,
    "samples_per_insert": 1.0,
    "target_period": 5,
    "eval_episodes": 0,
    "checkpoint_interval": 0,
    "save_replay": True,
}
SEQUENCES: dict[str, Any] = {"sequence_length": 4, "burn_in": 2, "overlap": 0, "lstm_size": 4, "head_size": 4}
DISCRETE = {"env": "CartPole-v1"}
CONTINUOUS = {"env": "Pendulum-v1", "random_steps": 60}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "dqn": {**DISCRETE, "priority_exponent": 0.6, "n_step": 3},
    "c51": DISCRETE,
    "qrdqn": {**DISCRETE, "n_quantiles": 8},
    "iqn": {**DISCRETE, "n_fractions": 4, "n_cosines": 8},
    "rainbow": {**DISCRETE, "head_size": 8},
    "apex": {**DISCRETE, "head_size": 8, "envs_per_actor": 2},
    "r2d2": {**DISCRETE, **SEQUENCES, "envs_per_actor": 2},
    "agent57": {**DISCRETE, **SEQUENCES, "n_policies": 3},
    "ddpg": CONTINUOUS,
    "td3": CONTINUOUS,
    "sac": CONTINUOUS,
    "sac_discrete": {**DISCRETE, "random_steps": 60, "n_step": 2},
    "d4pg": CONTINUOUS,
}


OTHERS = ("apex", "c51", "d4pg", "ddpg", "iqn", "qrdqn", "td3")
"""Whose exactness is checked with the slow tests: what they add to the four is in their files alone."""


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch) -> None:
    monkeypatch.setattr(records, "draw_curve", lambda *_: None)


class Stops(Replay):
    """Presses Ctrl-C after some updates."""

    at = -1

    def update(self):
        update = super().update()
        if self.version == type(self).at and update.n_updates:
            os.kill(os.getpid(), signal.SIGINT)
        return update


def train(logdir: Path, name: str, stop_at: int = -1, resume: bool = False, **settings: Any) -> dict[str, Any]:
    entry = registry.load(name)
    made = entry.settings(**{**SMALL, **ALGORITHMS[name], **settings})
    stops = type("StopsAt", (Stops,), {"at": stop_at})
    return run(replace(entry, wiring=stops), made, logdir=logdir, resume=resume, tensorboard=False)


def end_of(logdir: Path) -> dict[str, Any]:
    saved = RunFolder(logdir).newest()
    return {
        "algorithm": saved["algorithm"],
        "randomness": saved["randomness"]["torch"],
        "env_steps": saved["record"]["env_steps"],
    }


@pytest.mark.parametrize(
    "name", ["dqn", "rainbow", "r2d2", "sac", "sac_discrete", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_resumed_run_ends_as_if_it_had_not_been_interrupted(tmp_path, name):
    whole = train(tmp_path / "whole", name)
    n_updates = whole["updates"]
    assert n_updates >= 6
    train(tmp_path / "parts", name, stop_at=n_updates // 2)
    assert RunFolder(tmp_path / "parts").newest()["record"]["n_updates"] == n_updates // 2
    resumed = train(tmp_path / "parts", name, resume=True)
    for figure in ("updates", "env_steps", "episodes", "return_mean", "replay_inserted", "replay_consumed"):
        assert resumed[figure] == whole[figure], figure
    assert_equal(end_of(tmp_path / "parts"), end_of(tmp_path / "whole"))


def test_agent57_goes_on_with_new_episodes(tmp_path, caplog):
    """The memory of what was new in an episode is not saved."""
    train(tmp_path, "agent57", stop_at=5)
    assert "begins new episodes" in caplog.text
    assert train(tmp_path, "agent57", resume=True)["env_steps"] >= 240


def test_without_a_saved_replay_a_resumed_run_fills_it_anew(tmp_path):
    train(tmp_path, "dqn", stop_at=10, save_replay=False)
    before = RunFolder(tmp_path).newest()["record"]["env_steps"]
    summary = train(tmp_path, "dqn", resume=True, save_replay=False)
    assert summary["replay_inserted"] == summary["env_steps"] - before
    assert not (tmp_path / "checkpoints" / "replay").exists()


def test_an_evaluation_changes_nothing_of_what_is_learned(tmp_path):
    train(tmp_path / "plain", "r2d2", total_steps=200)
    summary = train(tmp_path / "evaluated", "r2d2", total_steps=200, eval_interval=50, eval_episodes=2)
    assert summary["eval_return_mean"] > 0
    assert_equal(end_of(tmp_path / "evaluated")["algorithm"], end_of(tmp_path / "plain")["algorithm"])


def test_each_transition_is_learned_from_as_often_as_the_settings_say(tmp_path):
    summary = train(tmp_path, "dqn", samples_per_insert=2.0)
    assert summary["replay_inserted"] == summary["env_steps"]
    assert summary["replay_consumed"] == 8 * summary["updates"]
    assert 0 <= (summary["env_steps"] - 40) * 2 - summary["replay_consumed"] <= 4 * 2 + 8
    rows = (tmp_path / "progress.csv").read_text().splitlines()
    assert {"inserted", "consumed"} <= set(rows[0].split(","))
    assert json.loads((tmp_path / "summary.json").read_text())["replay_consumed"] == summary["replay_consumed"]


def test_two_runs_of_a_seed_are_equal_and_of_two_seeds_are_not(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / folder, "td3", seed=seed, total_steps=120)
    one, same, other = (end_of(tmp_path / folder)["algorithm"]["model"] for folder in "abc")
    assert_equal(one, same)
    assert any(not torch.equal(one[name], other[name]) for name in one)


# Environments


@pytest.mark.parametrize("env", ["Acrobot-v1", "FrozenLake-v1", "MinAtar/Asterix-v0", "Ant-v5"])
def test_environments_go_on_from_a_snapshot(env):
    pytest.importorskip("minatar") if env.startswith("MinAtar") else None
    settings = EnvSettings(env=env, normalize_reward=True)
    envs, others = make_envs_from(settings, 2), make_envs_from(settings, 2)
    actions = _actions_of(envs)
    envs.reset(seed=[1, 2])
    others.reset(seed=[3, 4])
    for _ in range(60):
        envs.step(next(actions))
    restore_envs(others, capture_envs(envs))
    for _ in range(60):
        action = next(actions)
        (obs, reward, *ends, _), (its_obs, its_reward, *its_ends, _) = envs.step(action), others.step(action)
        assert_equal([obs, reward, *ends], [its_obs, its_reward, *its_ends])


def test_what_cannot_be_saved_of_an_environment_is_named():
    envs = make_envs_from(EnvSettings(env="LunarLander-v3"), 1)
    envs.reset(seed=1)
    with pytest.raises(CannotSave, match=r"LunarLander\.world"):
        capture_envs(envs)
    envs.close()


def _actions_of(envs):
    envs.action_space.seed(1)
    while True:
        yield envs.action_space.sample()


# Memory and exploration


def test_the_memory_is_shared_out_among_shards():
    settings = registry.load("apex").settings(replay_capacity=1000, n_actors=2, n_shards=2, learning_starts=100)
    buffer = make_buffer(settings, (), 1, 0)
    assert (buffer.capacity, buffer.n_step, buffer.sampler.prioritized) == (502, 3, True)
    assert (limiter_of(settings).min_size, limiter_of(settings).samples_per_insert) == (50, 1.0)
    sequences = registry.load("r2d2").settings(replay_capacity=1000, learning_starts=400)
    assert (make_buffer(sequences, (), 1, 0).length, limiter_of(sequences).min_size) == (120, 10)


def test_frames_of_atari_games_are_kept_once():
    assert make_buffer(registry.load("dqn").settings(env="ALE/Pong-v5"), (), 1, 0)._frame_stack == 4
    assert make_buffer(registry.load("dqn").settings(env="CartPole-v1"), (), 1, 0)._frame_stack == 0


def test_epsilon_falls_with_the_run_or_is_that_of_a_place():
    settings = dqn.DQNSettings(total_steps=1000, epsilon_end=0.1, exploration_fraction=0.5)
    index = np.arange(2)
    assert [epsilon_at(settings, steps, index, 2) for steps in (0, 250, 500, 900)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert epsilon_at(replace(settings, noisy=True), 0, index, 2) == 0.0
    ladder = registry.load("apex").settings()
    assert epsilon_at(ladder, 0, np.array([0, 7, 14]), 15).tolist() == pytest.approx([0.4, 0.4**4.5, 0.4**8])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_actors": 0, "n_shards": 1}, "n_shards is 1, and n_actors is 0"),
        ({"samples_per_insert": 0.0}, "samples_per_insert is 0.0, and n_actors is 0"),
        ({"n_actors": 1, "n_shards": 2}, "n_shards is 2: at most one for each of 1 actors"),
        ({"learning_starts": 200_000}, "learning_starts is 200000: at most replay_capacity"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        dqn.DQNSettings(**settings)


def test_priorities_of_new_steps_are_those_that_the_buffer_would_find():
    entry = registry.load("apex")
    settings = entry.settings(**{**SMALL, **ALGORITHMS["apex"], "unroll_length": 40, "actor_priorities": True})
    torch.manual_seed(0)
    agent = Agent(entry.algorithm(entry.make_model(settings, spaces_of_env(settings)), settings))
    player = Player(make_envs_from(settings, 2), agent.alg, entry.make_policy, place=0, n_places=1, seeds=sequence_of(1, 0))
    columns = player.play(0, 0)
    assert not columns["valid"].all()  # an episode has ended
    priority = step_priorities(agent.alg, columns)
    np.testing.assert_array_equal(priority, columns["priority"])
    buffer = make_buffer(replace(settings, priority_exponent=0.0), ("priority",), 1, 0)
    buffer.add(columns)
    batch = buffer.sample(64)
    found = agent.alg.priority({name: torch.from_numpy(column) for name, column in batch.items()})
    np.testing.assert_allclose(found, batch["priority"], rtol=1e-5, atol=1e-6)
    assert (priority[~columns["valid"]] == 0).all()


@pytest.mark.parametrize("name", ["r2d2", "agent57"])
def test_priorities_of_the_rows_of_new_sequences_are_those_that_the_learner_would_find(name):
    entry, play = registry.load(name), {"unroll_length": 20, "sequence_length": 21, "burn_in": 0, "overlap": 1}
    settings = entry.settings(**{**SMALL, **ALGORITHMS[name], **play})
    torch.manual_seed(0)
    algorithm = entry.algorithm(entry.make_model(settings, spaces_of_env(settings)), settings)
    player = Player(make_envs_from(settings, 2), algorithm, entry.make_policy, place=0, n_places=1, seeds=sequence_of(1, 0))
    extra = ("priority", *getattr(algorithm, "extra_columns", ()))
    buffer = make_buffer(replace(settings, priority_exponent=0.0, replay_capacity=500), extra, 1, 0)
    for _ in range(5):
        buffer.add(player.play(0, 0))
    batch = buffer.sample(32)
    assert not batch["valid"].all()  # episodes have ended
    found = Agent(algorithm)._call(algorithm.errors, (batch,), {})
    known = ~batch["terminated"][-1]  # else its last row has a target, which the actor could not see yet
    np.testing.assert_allclose(np.abs(found[:-1, known]), batch["priority"][:-1, known], rtol=1e-4, atol=1e-5)
    assert (batch["priority"][batch["valid"]] > 0).mean() > 0.9


def test_in_a_memory_of_one_process_samples_wait_for_inserts_and_weights_follow_beta():
    settings = dqn.DQNSettings(**{**SMALL, **ALGORITHMS["dqn"]})
    entry = registry.load("dqn")
    memory = LocalReplay(ReplayShard(partial(make_buffer, settings, (), 1, 0), limiter_of(settings)), 8)
    assert memory.sample() is None
    torch.manual_seed(0)
    agent = entry.algorithm(entry.make_model(settings, spaces_of_env(settings)), settings)
    player = Player(make_envs_from(settings, 1), agent, entry.make_policy, place=0, n_places=1, seeds=sequence_of(1, 0))
    number = 0
    while memory.sample() is None:
        assert memory.insert(player.play(0, 0), 0, number)
        number += 1
    figures = memory.figures()
    assert 48 <= figures["inserted"] <= 52  # 40 to start with, 8 for a batch
    batch_index = np.arange(3)
    memory.update_priorities(batch_index, np.array([100.0, 1.0, 1.0]))
    memory.beta = 0.0
    assert (np.concatenate([_insert_and_sample(memory, player, number + k) for k in range(1, 4)]) == 1).all()


def _insert_and_sample(memory: LocalReplay, player: Player, number: int) -> np.ndarray:
    while (batch := memory.sample()) is None:
        memory.insert(player.play(0, 0), 1, number)
        number += 100
    return batch["weight"]


# Small environments are solved, through the path of the command line


def corridor():
    return Corridor()


def aim():
    return Aim()


def command_line(logdir: Path, algorithm: str, env: str, **settings: Any) -> dict[str, Any]:
    options = {"env": f"{__name__}:{env}", "logdir": logdir, "learning_starts": 100, "replay_capacity": 5000, **settings}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = CliRunner().invoke(main, [algorithm, *arguments, "--no-tensorboard"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    summary: dict[str, Any] = json.loads((logdir / "summary.json").read_text())
    return summary


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dqn", {"n_step": 3}),
        pytest.param(
            "rainbow", {"head_size": 16, "value_low": -2, "value_high": 1, "learning_rate": 1e-3}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_corridor_is_walked_the_short_way(tmp_path, name, settings):
    sizes = {"hidden_size": 32, "target_period": 50, "total_steps": 1500, "exploration_fraction": 0.3, "eval_episodes": 5}
    summary = command_line(tmp_path, name, "corridor", **{"learning_rate": 2e-3, **sizes, **settings})
    assert summary["eval_return_mean"] == pytest.approx(0.6)


def test_a_corridor_is_walked_by_a_policy_that_keeps_some_entropy(tmp_path):
    sizes = {"hidden_size": 32, "batch_size": 32, "samples_per_insert": 32, "random_steps": 100, "total_steps": 600}
    rates = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "target_rate": 0.02, "gamma": 0.9, "eval_episodes": 5}
    soft = {"temperature": 0.1, "target_entropy_share": 0.2}
    assert command_line(tmp_path, "sac_discrete", "corridor", **sizes, **rates, **soft)["eval_return_mean"] == pytest.approx(0.6)


@pytest.mark.parametrize("name", ["td3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sac", "ddpg", "d4pg"))])
def test_actions_come_near_a_point(tmp_path, name):
    sizes = {"hidden_size": 32, "batch_size": 32, "samples_per_insert": 32, "random_steps": 200, "total_steps": 1200}
    rates = {"actor_learning_rate": 2e-3, "critic_learning_rate": 2e-3, "eval_episodes": 50}
    span = {"value_low": -4, "value_high": 0} if name == "d4pg" else {}
    summary = command_line(tmp_path, name, "aim", **sizes, **rates, **span)
    assert summary["eval_return_mean"] > -0.15  # chance gets -1.1


# Memory in the policy


def recall():
    return Recall()


def test_r2d2_remembers_what_dqn_cannot_know(tmp_path):
    """Through the same path as the command line, in seconds."""
    common = {"env": f"{__name__}:recall", "total_steps": 4000, "learning_starts": 200, "eval_episodes": 20}
    common |= {"learning_rate": 5e-3, "batch_size": 16, "samples_per_insert": 2.0, "target_period": 20, "gamma": 0.9}
    common |= {"replay_capacity": 4000, "save_replay": False, "hidden_size": 16, "exploration_fraction": 0.5}
    memory = {"envs_per_actor": 4, "unroll_length": 10, "sequence_length": 10, "burn_in": 0, "overlap": 0, "lstm_size": 16}
    memory |= {"n_step": 1, "head_size": 0, "rescale_epsilon": 1e-3, "samples_per_insert": 8.0, "epsilon_base": 0.3}
    remembered = train(tmp_path / "r2d2", "r2d2", **{**common, **memory})
    forgot = train(tmp_path / "dqn", "dqn", **{**common, "total_steps": 1500})
    assert remembered["eval_return_mean"] == 1.0
    assert forgot["eval_return_mean"] < 0.6
