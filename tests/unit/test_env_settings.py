"""Environments from settings: each kind can be made and played, rewards and lives are as told, and errors say what to do."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode
from learning_envs import Alternating, Counter

from parl_lite.agents.collector import Collector, concatenate
from parl_lite.agents.env_settings import EnvSettings, make_envs_from
from parl_lite.agents.envs import autoreset_mode_of, make_envs, spaces_of
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.spaces import BoxActions, DiscreteActions, ObsSpec
from parl_lite.errors import ParlError


class Uniform(Alternating):
    """A policy that draws from all discrete actions."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.stream = np.random.default_rng(0)

    def __call__(self, obs, first):
        action = self.stream.integers(self.n, size=len(first))
        return action, np.zeros((len(first), self.n), dtype=np.float32)


def collect(settings: EnvSettings, n_steps: int, n_envs: int = 2, evaluation: bool = False):
    envs = make_envs_from(settings, n_envs, evaluation=evaluation)
    columns = Collector(envs, Uniform(spaces_of(envs).n_actions), n_steps, seeds=range(n_envs)).collect()
    envs.close()
    return columns


# Each kind


needs_minatar = pytest.mark.skipif(find_spec("minatar") is None, reason="needs MinAtar: pip install --no-deps MinAtar")


@pytest.mark.parametrize(
    ("env", "obs", "action"),
    [
        ("CartPole-v1", ObsSpec((4,), np.dtype(np.float32)), DiscreteActions(2)),
        ("LunarLander-v3", ObsSpec((8,), np.dtype(np.float32)), DiscreteActions(4)),
        (
            "HalfCheetah-v5",
            ObsSpec((17,), np.dtype(np.float32)),
            BoxActions((-1.0,) * 6, (1.0,) * 6, (6,), np.dtype(np.float32)),
        ),
        pytest.param("MinAtar/Breakout-v0", ObsSpec((10, 10, 4), np.dtype(bool)), DiscreteActions(6), marks=needs_minatar),
        pytest.param("MinAtar/Breakout-v1", ObsSpec((10, 10, 4), np.dtype(bool)), DiscreteActions(3), marks=needs_minatar),
        ("ALE/Pong-v5", ObsSpec((4, 84, 84), np.dtype(np.uint8)), DiscreteActions(6)),
        ("learning_envs:Corridor", ObsSpec((5,), np.dtype(np.float32)), DiscreteActions(2)),
    ],
)
def test_every_kind_of_environment_can_be_played(env, obs, action, preserved_randomness):
    worker = RolloutWorker(
        partial(make_envs_from, EnvSettings(env=env), 2),
        partial(actor_critic, NetworkSettings(hidden_size=4, cnn_features=4)),
        unroll_length=6,
        seed=1,
        rank=0,
    )
    assert spaces_of(worker.envs) == (obs, action)
    assert autoreset_mode_of(worker.envs) == AutoresetMode.NEXT_STEP
    worker.set_weights(0, worker.model.get_weights())
    columns = concatenate([worker.sample(), worker.sample()])
    assert columns["obs"].shape == (7, 4, *obs.shape)
    assert columns["obs"].dtype == obs.dtype
    assert columns["action"].shape == (6, 4, *action.shape)
    assert np.isfinite(columns["behaviour_log_prob"]).all()
    worker.envs.close()


@pytest.fixture
def preserved_randomness():
    """Workers seed their process's global streams: put them back for the other tests."""
    from parl_lite import snapshot

    state = snapshot.capture_randomness()
    yield
    snapshot.restore_randomness(state)


def test_mujoco_writes_no_file_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_envs_from(EnvSettings(env="HalfCheetah-v5"), 1).close()
    assert list(tmp_path.iterdir()) == []


def test_environments_in_processes_of_their_own_play_the_same():
    apart, together = (collect(EnvSettings(env="CartPole-v1", vector=vector), 40) for vector in ("async", "sync"))
    assert together["terminated"].any()
    for name in apart:
        np.testing.assert_array_equal(apart[name], together[name])


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")
def test_an_error_in_another_process_names_the_environment():
    envs = make_envs(partial(Counter, 3), 2, parallel=True)
    envs.reset()
    with pytest.raises(ParlError, match=r"environment [01] \(Counter\) raised ValueError in step\(\)"):
        envs.step(np.array(["left", "right"]))
    envs.close()


def test_episodes_are_truncated_where_the_settings_say():
    for env in ("CartPole-v1", "learning_envs:Corridor", "ALE/Pong-v5"):
        columns = collect(EnvSettings(env=env, max_episode_steps=3), 8)
        assert set(columns["episode_length"][columns["truncated"]]) == {3}, env
        assert not columns["terminated"].any()


# Rewards


def test_rewards_are_clipped_and_scaled_to_learn_from_and_returns_are_raw():
    gymnasium.register("Payer-v0", partial(Payer, [5.0, -0.5, -7.0]))
    settings = EnvSettings(env="Payer-v0", clip_reward=True, reward_scale=0.5)
    columns = collect(settings, 8, 1)
    assert columns["reward"][:, 0].tolist() == [0.5, -0.25, -0.5, 0, 0.5, -0.25, -0.5, 0]
    assert columns["episode_return"][columns["terminated"]].tolist() == [-2.5, -2.5]
    evaluated = collect(settings, 3, 1, evaluation=True)
    assert evaluated["reward"][:, 0].tolist() == [5, -0.5, -7]
    del gymnasium.registry["Payer-v0"]


def test_discounted_sums_of_rewards_begin_anew_with_each_episode():
    gymnasium.register("Payer-v0", partial(Payer, [4.0, 2.0, 1.0]))
    columns = collect(EnvSettings(env="Payer-v0", normalize_reward=True, gamma=0.5), 6, 1)
    assert columns["valid"][:, 0].tolist() == [True, True, True, False, True, True]
    assert columns["discounted_return"][:, 0].tolist() == [4, 4, 3, 0, 4, 4]
    assert columns["reward"][:, 0].tolist() == [4, 2, 1, 0, 4, 2]
    del gymnasium.registry["Payer-v0"]


class Payer(Counter):
    """Pays what it is told, step by step."""

    def __init__(self, rewards: list[float]) -> None:
        super().__init__(len(rewards))
        self.rewards = rewards

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, self.rewards[self.count - 1], *rest


# Atari


def test_frames_are_as_the_settings_say_and_seeds_repeat_a_game():
    settings = EnvSettings(env="ALE/Pong-v5", frame_size=42, frame_stack=2)
    columns, again = collect(settings, 30), collect(settings, 30)
    assert columns["obs"].shape == (31, 2, 2, 42, 42)
    np.testing.assert_array_equal(columns["obs"], again["obs"])
    assert (columns["obs"][:, 0] != columns["obs"][:, 1]).any()
    newer, older = columns["obs"][1:, :, 0], columns["obs"][:-1, :, 1]  # each frame but the newest was there before
    np.testing.assert_array_equal(newer, older)


def test_a_lost_life_ends_an_episode_to_learn_from_but_not_the_game():
    settings = EnvSettings(env="ALE/Breakout-v5", frame_size=42, life_loss=True)
    columns = collect(settings, 450)
    for b in range(2):
        games = np.flatnonzero(~np.isnan(columns["episode_return"][:, b]))
        lives = np.flatnonzero(columns["terminated"][:, b])
        assert len(games) >= 1
        assert np.searchsorted(lives, games[0]) == 4  # five lives a game: the fifth loss is its end
        lost = lives[0]
        assert columns["valid"][lost + 1, b]
        assert columns["first"][lost + 1, b]
        assert not columns["valid"][games[0] + 1, b]
        assert columns["first"][games[0] + 1 : games[0] + 3, b].tolist() == [False, True]
        assert columns["episode_length"][games[0], b] == columns["valid"][: games[0] + 1, b].sum()


def test_without_life_loss_and_in_evaluation_only_games_end():
    for life_loss in (False, True):
        settings = EnvSettings(env="ALE/Breakout-v5", frame_size=42, life_loss=life_loss)
        columns = collect(settings, 300, 2, evaluation=life_loss)
        assert columns["terminated"].sum() >= 1
        np.testing.assert_array_equal(columns["terminated"], ~np.isnan(columns["episode_return"]))


def test_atari_rewards_can_be_clipped_and_scores_are_still_those_of_the_game():
    settings = EnvSettings(env="ALE/MsPacman-v5", frame_size=42, clip_reward=True, max_episode_steps=100)
    columns = collect(settings, 100, 1)
    assert set(np.unique(columns["reward"])) == {0.0, 1.0}
    assert columns["episode_return"][-1, 0] == 10 * columns["reward"].sum()  # a pill is worth 10


def test_sticky_actions_and_all_actions_can_be_had():
    settings = EnvSettings(env="ALE/Breakout-v5", frame_size=42, full_actions=True, noop_max=1)
    plain = collect(settings, 60)
    sticky = collect(EnvSettings(**{**vars(settings), "sticky": 0.5}), 60)
    assert plain["behaviour_logits"].shape[-1] == 18
    assert (plain["obs"] != sticky["obs"]).any()


def test_the_names_of_older_days_are_known():
    envs = make_envs_from(EnvSettings(env="BreakoutNoFrameskip-v4"), 1)
    assert spaces_of(envs).n_actions == 4
    envs.close()


def test_making_games_does_not_write_into_all_vector_environments():
    make_envs_from(EnvSettings(env="ALE/Pong-v5"), 1).close()
    assert "autoreset_mode" not in gymnasium.vector.VectorEnv.metadata


# Dict, Tuple and other actions


class Zoo(gymnasium.Env):
    """Takes any action of its space and gives a Dict with a Tuple inside; an episode has three steps."""

    observation_space = Dict(
        count=Box(-np.inf, np.inf, (1,), np.float64), pair=Tuple((Discrete(4), MultiBinary(2))), picks=MultiDiscrete([2, 3])
    )

    def __init__(self, action_space) -> None:
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        return self._obs(), 1.0, False, self.count == 3, {}

    def _obs(self):
        bits = np.array([self.count % 2, 1], dtype=np.int8)
        picks = np.array([self.count % 2, self.count % 3])
        return {"count": np.array([self.count / 8]), "pair": (self.count, bits), "picks": picks}


ACTIONS = {
    "discrete": Discrete(3, start=-1),
    "multi-discrete": MultiDiscrete(np.array([[2, 3], [4, 5]])),
    "binary": MultiBinary((2, 2)),
    "box": Box(-0.1, 0.1, (2, 3), np.float32),
    "box64": Box(-0.1, 0.1, (1,), np.float64),
}


@pytest.mark.parametrize("lstm_size", [0, 4])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("name", "squash"), [*((name, False) for name in ACTIONS), ("box", True), ("box64", True)])
def test_any_actions_and_nested_observations_are_collected(name, squash, mode, lstm_size, preserved_randomness):
    worker = RolloutWorker(
        lambda: make_envs(lambda: Zoo(ACTIONS[name]), 2, mode),
        partial(actor_critic, NetworkSettings(hidden_size=4, lstm_size=lstm_size, squash=squash)),
        unroll_length=8,
        seed=1,
        rank=0,
    )
    worker.set_weights(0, worker.model.get_weights())
    batch = concatenate([worker.sample(), worker.sample()])
    kind = worker.collector.spaces.action
    assert batch["action"].shape == (8, 4, *kind.shape)
    assert batch["action"].dtype == kind.dtype
    assert np.isfinite(batch["behaviour_log_prob"]).all()
    counts = batch["obs"]["pair"]["0"]
    np.testing.assert_array_equal(batch["obs"]["count"][..., 0], counts / 8)
    np.testing.assert_array_equal(batch["obs"]["pair"]["1"][..., 0], counts % 2)
    assert batch["obs"]["count"].dtype == np.float32
    np.testing.assert_array_equal(batch["first"], counts == 0)
    if mode != AutoresetMode.NEXT_STEP:
        assert set(batch["final_obs"]["pair"]["0"]) == {3}
        assert batch["truncated"].reshape(-1)[batch["final_row"]].all()


# What cannot be made


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vector": "threads"}, "vector is 'threads'; it can be auto, sync, async, ale"),
        ({"vector": "ale"}, "CartPole-v1 is no Atari game, so vector must be auto, sync or async"),
        ({"env": "ALE/Pong-v5", "vector": "sync"}, "vector must be auto or ale, not sync"),
        ({"env": "ALE/Pongg-v5"}, "there is no game ALE/Pongg-v5; there are ALE/Adventure-v5, "),
        ({"env": "MinAtar/Pong-v0"}, "there is no game MinAtar/Pong-v0; there are MinAtar/Asterix-v0, "),
        ({"env": "no_such_module:make"}, r"environment 0 \(no_such_module:make\) could not be made: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_made_is_refused_with_what_can(settings, words):
    with pytest.raises(ParlError, match=words):
        make_envs_from(EnvSettings(**settings), 1)


@pytest.mark.parametrize(
    ("package", "env", "command"),
    [
        ("ale_py", "ALE/Pong-v5", r"pip install 'parl_lite\[atari\]'"),
        ("minatar", "MinAtar/Freeway-v0", "pip install --no-deps MinAtar"),
        ("mujoco", "Hopper-v5", r"pip install 'parl_lite\[mujoco\]'"),
        ("Box2D", "BipedalWalker-v3", r"pip install 'parl_lite\[box2d\]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(package, env, command, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ParlError, match=command):
        make_envs_from(EnvSettings(env=env), 1)
