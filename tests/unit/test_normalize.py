"""Running statistics: against numpy, merged, in models and checkpoints; rewards as gymnasium scales them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.normalize import (
    Moments,
    ObsNormalizer,
    ReturnScaler,
    RunningMoments,
    moments_of,
    update_statistics,
)
from parl_lite.agents.spaces import DiscreteActions, ObsSpec, Spaces

SPACES = Spaces({"a": ObsSpec((2,), np.dtype(np.float32)), "b": ObsSpec((), np.dtype(np.int64), (3,), (0,))}, DiscreteActions(2))


def normalizing_model():
    return actor_critic(NetworkSettings(hidden_size=4, normalize_obs=True), SPACES)


def rollout(seed: int) -> dict:
    """T = 5, B = 2; the last row of each column of obs is where the rollout ends, and row 1 of environment 0 is none."""
    stream = np.random.default_rng(seed)
    valid = torch.ones(5, 2, dtype=torch.bool)
    valid[1, 0] = False
    obs = {"a": torch.from_numpy(stream.normal(3, 2, (6, 2, 2))).float(), "b": torch.zeros(6, 2, dtype=torch.int64)}
    return {"obs": obs, "valid": valid, "reward": torch.ones(5, 2)}


def test_moments_by_hand():
    merged = moments_of(torch.tensor([1.0, 3.0])).merge(moments_of(torch.tensor([5.0])))
    assert [number.item() for number in merged] == pytest.approx([3, 3, 8 / 3])
    one = Moments(*(torch.tensor(number) for number in (1.0, 5.0, 0.0)))
    assert one.merge(one).variance == 0


def test_many_updates_are_one_of_all_in_any_order():
    numbers = torch.from_numpy(np.random.default_rng(0).normal(1000, 0.1, (300, 3)))
    forward, backward = RunningMoments((3,)), RunningMoments((3,))
    for part in numbers.split(7):
        forward.update(part)
    for part in reversed(numbers.split(31)):
        backward.merge(moments_of(part))
    for moments in (forward, backward):
        # the first 1e-4 "numbers" of mean 0 and variance 1 that it begins with weigh 3e-7: (1e-4 / 300) * 1000^2 in the variance
        np.testing.assert_allclose(moments.mean, numbers.mean(0), rtol=1e-6)
        np.testing.assert_allclose(moments.variance, numbers.var(0, correction=0) + 1e-4 / 300 * 1000**2, rtol=1e-3)


def test_no_numbers_change_nothing():
    moments = RunningMoments((2,))
    moments.update(torch.zeros(0, 2))
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([0, 0], [1, 1])


def test_observations_are_normalised_and_clipped():
    normalizer = ObsNormalizer((1,))
    assert normalizer(torch.tensor([[3.0], [-50.0]])).tolist() == [[3.0], [-10.0]]
    normalizer.update(torch.tensor([[8.0], [12.0]] * 500))
    np.testing.assert_allclose(normalizer(torch.tensor([[10.0], [14.0], [99.0]])).ravel(), [0, 2, 10], atol=1e-3)
    assert normalizer(torch.zeros(1, 1)).dtype == torch.float32


def test_a_model_learns_its_statistics_from_valid_rows_only():
    model, batch = normalizing_model(), rollout(0)
    update_statistics(model, batch)
    seen = batch["obs"]["a"][:-1][batch["valid"]]
    assert len(seen) == 9
    normalizer = model.encoder.parts[0].normalizer
    np.testing.assert_allclose(normalizer.mean, seen.double().mean(0), rtol=1e-4)
    assert normalizer.n.item() == pytest.approx(9, abs=1e-3)


def test_statistics_travel_with_weights_and_stay_as_they_are_when_acting():
    learner, actor = normalizing_model(), normalizing_model()
    update_statistics(learner, rollout(0))
    actor.set_weights(learner.get_weights())
    before = actor.get_weights()
    obs = {"a": torch.full((4, 2), 9.0), "b": torch.zeros(4, dtype=torch.int64)}
    assert torch.equal(actor.policy(obs), learner.policy(obs))
    for name, array in actor.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_statistics_are_no_parameters_and_a_model_without_them_has_none():
    model = normalizing_model()
    assert not any("normalizer" in name for name, _ in model.named_parameters())
    plain = actor_critic(NetworkSettings(hidden_size=4), SPACES)
    before = plain.get_weights()
    update_statistics(plain, rollout(0))
    update_statistics(object(), rollout(0))
    assert plain.get_weights().keys() == before.keys()
    assert not any("normalizer" in name for name in before)


def test_rewards_are_divided_by_the_deviation_of_discounted_sums():
    scaler = ReturnScaler()
    batch = {
        "reward": torch.tensor([[2.0], [-3.0], [400.0]]),
        "discounted_return": torch.tensor([[0.0], [4.0], [9999.0]]),
        "valid": torch.tensor([[True], [True], [False]]),
    }
    # of 0 and 4 the deviation is 2
    np.testing.assert_allclose(scaler(batch), [[1.0], [-1.5], [10.0]], rtol=1e-3)


def test_rewards_without_discounted_sums_are_left_alone():
    batch = rollout(0)
    assert ReturnScaler()(batch) is batch["reward"]


def test_a_scaler_goes_on_from_its_state():
    ours, theirs = ReturnScaler(), ReturnScaler()
    batch = {**rollout(0), "discounted_return": torch.randn(5, 2)}
    ours(batch)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(batch), theirs(batch))
