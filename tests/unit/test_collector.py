"""Rollouts: every row is a step that happened, in each way of starting the next episode."""

from __future__ import annotations

import itertools
import random
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from learning_envs import Alternating, Counter, Faulty

from parl_lite.agents.collector import Collector, concatenate
from parl_lite.agents.envs import make_envs
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import RolloutWorker, SamplingPolicy
from parl_lite.agents.seeds import env_seeds, sequence_of, torch_generator
from parl_lite.agents.spaces import DiscreteActions, ObsSpec, Spaces
from parl_lite.errors import ParlError

MODES = list(AutoresetMode)
NETWORK = NetworkSettings(hidden_size=8)


def counters(mode: AutoresetMode, ends: str = "terminated", first_action: int = 0):
    """Two environments whose episodes take 3 and 4 steps."""
    lengths = itertools.cycle([3, 4])
    return make_envs(lambda: Counter(next(lengths), ends, first_action), 2, mode)


def transitions(columns, b: int) -> list[tuple[float, float, str]]:
    """Return (obs, next obs, how it ended) of the valid rows of environment b, next obs as V-trace takes it."""
    following = columns["obs"][1:].copy()
    if "final_row" in columns:
        following.reshape(-1, 1)[columns["final_row"]] = columns["final_obs"]
    ends = {(True, False): "terminated", (False, True): "truncated", (False, False): ""}
    return [
        (
            columns["obs"][t, b, 0].item(),
            following[t, b, 0].item(),
            ends[bool(columns["terminated"][t, b]), bool(columns["truncated"][t, b])],
        )
        for t in range(len(columns["action"]))
        if columns["valid"][t, b]
    ]


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("mode", MODES)
def test_every_valid_row_is_a_step_within_one_episode(mode, ends):
    columns = Collector(counters(mode, ends), Alternating(), 12).collect()
    episodes = [[(0, 1, ""), (1, 2, ""), (2, 3, ends)], [(0, 1, ""), (1, 2, ""), (2, 3, ""), (3, 4, ends)]]
    n_rows = (9, 10) if mode == AutoresetMode.NEXT_STEP else (12, 12)
    for b in range(2):
        assert transitions(columns, b) == (episodes[b] * 4)[: n_rows[b]]


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_go_on_where_the_last_ended(mode):
    long = Collector(counters(mode), Alternating(), 12).collect()
    collector = Collector(counters(mode), Alternating(), 4)
    short = [collector.collect() for _ in range(3)]
    for name in ("action", "reward", "terminated", "valid", "behaviour_logits", "episode_return", "episode_length"):
        np.testing.assert_array_equal(np.concatenate([columns[name] for columns in short]), long[name])
    for name in ("obs", "first"):
        np.testing.assert_array_equal(np.concatenate([columns[name][:-1] for columns in short]), long[name][:-1])
    np.testing.assert_array_equal(short[0]["obs"][-1], short[1]["obs"][0])


@pytest.mark.parametrize("mode", MODES)
def test_returns_and_lengths_of_episodes_are_raw_and_count_no_pseudo_steps(mode):
    columns = Collector(counters(mode), Alternating(), 12).collect()
    for b, length in enumerate([3, 4]):
        ended = ~np.isnan(columns["episode_return"][:, b])
        np.testing.assert_array_equal(ended, columns["terminated"][:, b])
        assert set(columns["episode_return"][ended, b]) == {length}
        assert set(columns["episode_length"][ended, b]) == {length}
        assert not columns["episode_length"][~ended, b].any()


def test_pseudo_rows_are_those_after_an_end_and_hold_no_reward():
    columns = Collector(counters(AutoresetMode.NEXT_STEP), Alternating(), 12).collect()
    np.testing.assert_array_equal(~columns["valid"][1:], columns["terminated"][:-1])
    np.testing.assert_array_equal(columns["reward"], columns["valid"].astype(np.float32))


def test_a_reward_that_an_environment_gives_for_a_pseudo_step_is_dropped():
    envs = counters(AutoresetMode.NEXT_STEP)
    step = envs.step

    def generous(action):
        obs, reward, *rest = step(action)
        return obs, np.where(reward == 0, 100.0, reward), *rest

    envs.step = generous
    columns = Collector(envs, Alternating(), 12).collect()
    np.testing.assert_array_equal(columns["reward"], columns["valid"].astype(np.float32))
    assert np.nanmax(columns["episode_return"]) == 4


def test_columns_have_the_documented_shapes_and_dtypes():
    columns = Collector(counters(AutoresetMode.SAME_STEP), Alternating(), 12).collect(version=7)
    assert {name: (array.dtype.name, array.shape) for name, array in columns.items()} == {
        "obs": ("float32", (13, 2, 1)),
        "first": ("bool", (13, 2)),
        "action": ("int64", (12, 2)),
        "reward": ("float32", (12, 2)),
        "terminated": ("bool", (12, 2)),
        "truncated": ("bool", (12, 2)),
        "valid": ("bool", (12, 2)),
        "behaviour_logits": ("float32", (12, 2, 2)),
        "behaviour_log_prob": ("float32", (12, 2)),
        "episode_return": ("float64", (12, 2)),
        "episode_length": ("int32", (12, 2)),
        "version": ("int64", ()),
        "final_obs": ("float32", (7, 1)),
        "final_row": ("int64", (7,)),
    }
    assert columns["version"] == 7


def test_actions_and_logits_are_those_of_the_policy_for_the_observation_of_the_row():
    columns = Collector(counters(AutoresetMode.NEXT_STEP), Alternating(), 12).collect()
    np.testing.assert_array_equal(columns["action"], columns["obs"][:-1, :, 0] % 2)
    np.testing.assert_array_equal(columns["behaviour_logits"][:, :, 0], columns["obs"][:-1, :, 0])
    np.testing.assert_array_equal(columns["behaviour_log_prob"], -columns["action"])


@pytest.mark.parametrize("mode", MODES)
def test_first_marks_the_rows_in_which_an_episode_begins(mode):
    columns = Collector(counters(mode), Alternating(), 12).collect()
    begins = columns["obs"][:, :, 0] == 0
    np.testing.assert_array_equal(columns["first"], begins)
    assert begins.sum() >= 6


def test_an_action_space_that_starts_elsewhere_gets_its_own_numbers():
    envs = counters(AutoresetMode.SAME_STEP, first_action=5)
    columns = Collector(envs, Alternating(), 3).collect()
    assert columns["action"][:, 0].tolist() == [0, 1, 0]
    assert envs.envs[0].unwrapped.actions == [5, 6, 5]


def test_rollouts_that_were_returned_are_not_written_again():
    collector = Collector(counters(AutoresetMode.NEXT_STEP), Alternating(), 4)
    first = collector.collect()
    before = {name: array.copy() for name, array in first.items()}
    collector.collect()
    for name, array in before.items():
        np.testing.assert_array_equal(first[name], array)


@pytest.mark.parametrize("mode", MODES)
def test_concatenated_rollouts_lie_side_by_side(mode):
    collector = Collector(counters(mode), Alternating(), 5)
    rollouts = [collector.collect(version) for version in (3, 4)]
    batch = concatenate(rollouts)
    assert batch["version"].tolist() == [3, 4]
    assert batch["obs"].shape == (6, 4, 1)
    for b in range(4):
        assert transitions(batch, b) == transitions(rollouts[b // 2], b % 2)


def test_an_environment_that_fails_is_named():
    index = itertools.count()
    envs = make_envs(lambda: Faulty("step" if next(index) == 1 else ""), 2)
    with pytest.raises(ParlError, match="environment 1"):
        Collector(envs, Alternating(), 5).collect()


# Streams


def test_streams_differ_between_ranks_and_environments_and_repeat_from_run_to_run():
    def streams(seed: int, rank: int) -> tuple[int, ...]:
        env_stream, action_stream = sequence_of(seed, rank).spawn(2)
        draw = torch.randint(2**62, (1,), generator=torch_generator(action_stream)).item()
        return (*env_seeds(env_stream, 16), draw)

    first = [number for seed in (1, 2) for rank in range(-1, 8) for number in streams(seed, rank)]
    again = [number for seed in (1, 2) for rank in range(-1, 8) for number in streams(seed, rank)]
    assert first == again
    assert len(set(first)) == len(first)


def test_actions_follow_the_probabilities_of_the_policy():
    spaces = Spaces(ObsSpec((1,), np.dtype(np.float32)), DiscreteActions(3))
    model = actor_critic(NetworkSettings(), spaces)
    with torch.no_grad():
        model.actor[-1].bias.copy_(torch.tensor([0.5, 0.3, 0.2]).log())
        model.actor[-1].weight.zero_()
    policy = SamplingPolicy(model, torch.Generator().manual_seed(0), 20_000)
    actions, logits = policy(np.zeros((20_000, 1), np.float32), np.zeros(20_000, bool))
    np.testing.assert_allclose(np.bincount(actions) / 20_000, [0.5, 0.3, 0.2], atol=0.01)
    assert (actions.dtype, logits.dtype, logits.shape) == (np.int64, np.float32, (20_000, 3))


# The worker


def new_worker(rank: int = 0) -> RolloutWorker:
    return RolloutWorker(
        partial(make_envs, "CartPole-v1", 2), partial(actor_critic, NETWORK), unroll_length=50, seed=1, rank=rank
    )


def test_a_worker_repeats_itself_and_no_other_rank(preserved_randomness):
    weights = actor_critic(NETWORK, new_worker().collector.spaces).get_weights()
    rollouts = []
    for rank in (0, 0, 1):
        worker = new_worker(rank)
        worker.set_weights(0, weights)
        rollouts.append(worker.sample())
    np.testing.assert_array_equal(rollouts[0]["obs"], rollouts[1]["obs"])
    assert not (rollouts[0]["obs"] == rollouts[2]["obs"]).any(axis=-1).any()


def test_a_worker_seeds_the_streams_that_environments_may_draw_from(preserved_randomness):
    draws = []
    for rank in (0, 0, 1):
        new_worker(rank)
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 6


def test_a_worker_acts_with_the_newest_weights_it_was_given_in_any_order(preserved_randomness):
    worker = new_worker()
    older, newer = (actor_critic(NETWORK, worker.collector.spaces).get_weights() for _ in range(2))
    worker.set_weights(7, newer)
    worker.set_weights(6, older)
    assert worker.sample()["version"] == 7
    np.testing.assert_array_equal(worker.model.get_weights()["actor.0.weight"], newer["actor.0.weight"])


def test_a_worker_without_weights_says_what_is_missing(preserved_randomness):
    with pytest.raises(ParlError, match="call set_weights"):
        new_worker().sample()


@pytest.fixture
def preserved_randomness():
    """Workers seed their process's global streams: put them back for the other tests."""
    from parl_lite import snapshot

    state = snapshot.capture_randomness()
    yield
    snapshot.restore_randomness(state)
