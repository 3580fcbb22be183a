"""Sequences: starts, states, burn-in, ends of episodes, gaps; and over random episodes equal to the log."""

from __future__ import annotations

import numpy as np
import pytest
from fake_rollouts import MODES, FakeEnvs, key
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from test_replay_transitions import counting

from parl_lite.agents.replay import PrioritizedSampler, SequenceReplay, mixed_priority
from parl_lite.errors import ParlError


def all_of(buffer: SequenceReplay) -> dict:
    """Return a batch of all sequences, oldest first."""
    rows = np.flatnonzero(buffer.sampler.present)
    return buffer._read(rows[np.argsort(buffer.store.ring.serial[rows])])


def with_state(rollout: dict, value: float) -> dict:
    n_envs = rollout["reward"].shape[1]
    return {**rollout, "state": (np.full((n_envs, 3), value, np.float32), {"c": np.full((n_envs,), -value)})}


def test_sequences_start_with_rollouts_overlap_and_carry_the_state_of_their_start():
    buffer = SequenceReplay(100, length=6, burn_in=2, period=2)
    for i in range(5):
        buffer.add(with_state(counting(2 * i, 2), float(i)))
    batch = all_of(buffer)
    assert batch["obs"][:, :, 0].T.tolist() == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 8, 9]]
    assert batch["valid"].all()
    assert batch["burn_in"] == 2
    hidden, rest = batch["state"]
    assert hidden.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert rest["c"].tolist() == [0, -1, -2]


def test_a_longer_period_leaves_starts_out():
    buffer = SequenceReplay(100, length=4, period=4)
    for i in range(6):
        buffer.add(with_state(counting(2 * i, 2), float(i)))
    batch = all_of(buffer)
    assert batch["obs"][:, :, 0].T.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert batch["state"][0][:, 0].tolist() == [0, 2, 4]


def two_episodes() -> list[dict]:
    """Return two rollouts: 3 steps and a final observation 3, then an episode that goes on from 10."""
    one = counting(0, 4, truncated=[2])
    one["obs"][4] = 11
    one["obs"][3] = 10
    one |= {"final_row": np.array([2]), "final_obs": np.full((1, 1), 3, np.float32)}
    return [with_state(one, 1.0), with_state(counting(11, 4), 2.0)]


def test_a_sequence_goes_over_the_end_of_an_episode_marked():
    buffer = SequenceReplay(100, length=6, period=4)
    for rollout in two_episodes():
        buffer.add(rollout)
    batch = all_of(buffer)
    assert batch["obs"][:, 0, 0].tolist() == [0, 1, 2, 3, 10, 11]
    assert batch["valid"][:, 0].tolist() == [True, True, True, False, True, True]
    assert batch["first"][:, 0].tolist() == [False, False, False, False, True, False]
    assert batch["truncated"][:, 0].tolist() == [False, False, True, False, False, False]
    assert batch["reward"][:, 0].tolist() == [1, 1, 1, 0, 1, 1]


def test_or_it_ends_there_and_another_starts_with_the_next_episode():
    buffer = SequenceReplay(100, length=5, period=4, cross_episodes=False)
    for rollout in [*two_episodes(), with_state(counting(15, 4), 3.0)]:
        buffer.add(rollout)
    batch = all_of(buffer)
    assert batch["obs"][:, :, 0].T.tolist() == [[0, 1, 2, 3, 0], [10, 11, 12, 13, 14], [11, 12, 13, 14, 15]]
    assert batch["valid"][:, 0].tolist() == [True, True, True, False, False]
    assert batch["valid"][:, 1:].all()
    assert batch["state"][0][:, 0].tolist() == [1, 0, 2]


def test_a_gap_ends_sequences_early_if_they_have_rows_to_learn_from():
    buffer = SequenceReplay(100, length=6, burn_in=2, period=2)
    buffer.add(counting(0, 2), number=0)
    buffer.add(counting(2, 2), number=1)
    assert len(buffer) == 0
    assert buffer.add(counting(8, 2), number=3) == 1
    batch = all_of(buffer)
    assert batch["obs"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0]
    assert batch["valid"][:, 0].tolist() == [True] * 4 + [False] * 2


def test_priorities_mix_the_maximum_and_the_mean_after_the_burn_in():
    assert mixed_priority(np.array([[1.0], [-3.0]]), np.ones((2, 1), bool), 0.9).tolist() == [0.9 * 3 + 0.1 * 2]
    assert mixed_priority(np.array([[1.0], [9.0]]), np.array([[True], [False]]), 0.9).tolist() == [1.0]
    buffer = SequenceReplay(100, length=4, burn_in=2, period=2, sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0))
    buffer.add({**counting(0, 2), "priority": np.array([[50.0], [50.0]])})
    buffer.add({**counting(2, 2), "priority": np.array([[1.0], [3.0]])})
    assert buffer.sampler.total == pytest.approx(0.9 * 3 + 0.1 * 2)
    assert buffer.update_priorities(buffer.sample(2)["index"], np.array([4.0, 5.0])) == 2
    assert buffer.sampler.total == 5.0


def test_states_of_another_shape_are_refused():
    buffer = SequenceReplay(100, length=4)
    buffer.add(with_state(counting(0, 4), 1.0))
    with pytest.raises(ParlError, match="the state of a rollout is"):
        buffer.add({**counting(4, 4), "state": (np.zeros((1, 4), np.float32), {"c": np.zeros(1)})})
    for arguments in ({"length": 4, "burn_in": 4}, {"length": 0}, {"length": 4, "period": 5}, {"length": 200}):
        with pytest.raises(ParlError, match="needs 0 <= burn_in < length <= capacity"):
            SequenceReplay(100, **arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cross", [True, False])
@seed(4)
@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_sequences_are_what_happened(mode, cross, data):
    """Whatever is valid in a sequence is a step of the log, the next row its next observation, and no end is unmarked."""
    n_steps, capacity = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([120, 10_000]))
    kind = data.draw(st.sampled_from(["vector", "stack", "dict"]))
    envs = FakeEnvs(data.draw(st.integers(0, 10**6)), 2, mode, kind)
    buffer = SequenceReplay(capacity, length=8, burn_in=2, period=4, cross_episodes=cross, frame_stack=4)
    for i in range(data.draw(st.integers(8, 20))):
        buffer.add(with_state(envs.rollout(n_steps), float(i)))
    log = {key(step.obs): step for steps in envs.steps for step in steps}
    batch = all_of(buffer)
    assert len(buffer) > 0
    for j in range(len(buffer)):
        for t in range(8):
            if not batch["valid"][t, j]:
                assert not (batch["reward"][t, j] or batch["terminated"][t, j] or batch["truncated"][t, j])
                continue
            step = log[key(at(batch["obs"], t, j))]
            names = ("action", "reward", "terminated", "truncated")
            assert [batch[name][t, j] for name in names] == [getattr(step, name) for name in names]
            if t < 7:
                assert key(at(batch["obs"], t + 1, j)) == key(step.next_obs)
                ended = step.terminated or step.truncated
                assert batch["valid"][t + 1, j] or ended or t + 1 == 7
                assert not ended or not batch["valid"][t + 1, j]
            assert not batch["first"][t, j] or t == 0 or not batch["valid"][t - 1, j]
            assert cross or not batch["first"][t, j] or t == 0


def at(obs, t, j):
    return {name: at(child, t, j) for name, child in obs.items()} if isinstance(obs, dict) else obs[t, j]
