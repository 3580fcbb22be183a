"""Distributions: numbers by hand, against torch.distributions, and samples against the probabilities."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import distributions as reference

from parl_lite.agents.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    TanhGaussian,
    distribution_for,
    distribution_of,
)
from parl_lite.agents.spaces import BinaryActions, BoxActions, DiscreteActions, MultiDiscreteActions


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def box(n: int) -> BoxActions:
    return BoxActions((-1.0,) * n, (1.0,) * n, (n,), torch.zeros(0).numpy().dtype)


KINDS = {
    "categorical": (Categorical, 4),
    "multi-categorical": (partial(MultiCategorical, sizes=(2, 3)), 5),
    "bernoulli": (Bernoulli, 3),
    "gaussian": (DiagonalGaussian, 4),
    "tanh-gaussian": (TanhGaussian, 4),
}


# By hand


def test_multi_categorical_by_hand():
    # probabilities (1/4, 3/4) and (1/2, 1/4, 1/4)
    logits = torch.tensor([0.0, math.log(3), math.log(2), 0.0, 0.0])
    pi = MultiCategorical(logits, (2, 3))
    assert pi.log_prob(torch.tensor([1, 0])).exp().item() == pytest.approx(3 / 8)
    assert pi.mode().tolist() == [1, 0]
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75) + 1.5 * math.log(2)
    assert pi.entropy().item() == pytest.approx(entropy)
    even = MultiCategorical(torch.zeros(5), (2, 3))
    assert pi.kl(even).item() == pytest.approx(math.log(2) + math.log(3) - entropy)


def test_bernoulli_by_hand():
    pi = Bernoulli(torch.tensor([math.log(3), 0.0]))  # on with 3/4 and 1/2
    assert pi.log_prob(torch.tensor([0, 1], dtype=torch.int8)).exp().item() == pytest.approx(1 / 8)
    assert pi.mode().tolist() == [1, 0]
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75) + math.log(2)
    assert pi.entropy().item() == pytest.approx(entropy)
    assert pi.kl(Bernoulli(torch.zeros(2))).item() == pytest.approx(2 * math.log(2) - entropy)


def test_gaussian_by_hand():
    # means 1, 2, deviations 2, 1; one deviation above and at the mean
    pi = DiagonalGaussian(torch.tensor([1.0, 2.0, math.log(2), 0.0]))
    assert pi.log_prob(torch.tensor([3.0, 2.0])).item() == pytest.approx(-0.5 - math.log(2) - math.log(2 * math.pi))
    assert pi.entropy().item() == pytest.approx(1 + math.log(2 * math.pi) + math.log(2))
    standard = DiagonalGaussian(torch.zeros(4))
    # each: log(s2/s1) + (s1^2 + (m1 - m2)^2) / (2 s2^2) - 1/2
    assert pi.kl(standard).item() == pytest.approx(-math.log(2) + (4 + 1) / 2 - 0.5 + (1 + 4) / 2 - 0.5)
    assert pi.mode().tolist() == [1, 2]


def test_tanh_gaussian_by_hand():
    # at u = 0 the slope of tanh is 1; at a = tanh(u) = 1/2 it is 3/4
    pi = TanhGaussian(torch.zeros(2))
    at_zero, at_half = torch.zeros(1), torch.tensor([math.atanh(0.5)])
    assert pi.log_prob(at_zero).item() == pytest.approx(-0.5 * math.log(2 * math.pi))
    normal_density = -0.5 * math.log(2 * math.pi) - 0.5 * math.atanh(0.5) ** 2
    assert pi.log_prob(at_half).item() == pytest.approx(normal_density - math.log(0.75))
    assert pi.squash(at_half).item() == pytest.approx(0.5)


# Against torch


def test_categorical_is_that_of_torch():
    logits, other, action = normal(5, 3), normal(5, 3, seed=1), torch.tensor([0, 1, 2, 0, 1])
    ours, theirs = Categorical(logits), reference.Categorical(logits=logits)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    divergence = reference.kl_divergence(theirs, reference.Categorical(logits=other))
    torch.testing.assert_close(ours.kl(Categorical(other)), divergence)


def test_bernoulli_is_that_of_torch():
    logits, other, action = 3 * normal(5, 3), normal(5, 3, seed=1), (normal(5, 3, seed=2) > 0).to(torch.int8)
    ours, theirs = Bernoulli(logits), reference.Independent(reference.Bernoulli(logits=logits), 1)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action.float()))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    divergence = reference.kl_divergence(theirs.base_dist, reference.Bernoulli(logits=other)).sum(-1)
    torch.testing.assert_close(ours.kl(Bernoulli(other)), divergence)


def test_gaussian_is_that_of_torch():
    params, other, action = normal(5, 4), normal(5, 4, seed=1), normal(5, 2, seed=2)
    ours = DiagonalGaussian(params)
    theirs, their_other = (reference.Independent(reference.Normal(p[:, :2], p[:, 2:].exp()), 1) for p in (params, other))
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.kl(DiagonalGaussian(other)), reference.kl_divergence(theirs, their_other))


def test_tanh_gaussian_is_that_of_torch():
    params, action = normal(5, 4), normal(5, 2, seed=2)
    base = reference.Normal(params[:, :2], params[:, 2:].exp())
    theirs = reference.Independent(reference.TransformedDistribution(base, [reference.TanhTransform()]), 1)
    torch.testing.assert_close(TanhGaussian(params).log_prob(action), theirs.log_prob(action.tanh()), atol=1e-4, rtol=1e-4)


# Where numbers are extreme


def test_the_density_of_tanh_stays_finite_where_tanh_is_one_in_float32():
    pi = TanhGaussian(torch.tensor([[30.0, 0.0], [-30.0, 0.0]]).requires_grad_())
    log_prob = pi.log_prob(torch.tensor([[30.0], [-30.0]]))
    # log(1 - tanh(30)^2) = log 4 - 60 to float32
    assert log_prob.tolist() == pytest.approx([60 - math.log(4) - 0.5 * math.log(2 * math.pi)] * 2)


def test_masked_actions_add_nothing_to_entropy_and_divergence():
    masked = Categorical(torch.tensor([0.0, 0.0, -torch.inf]))
    assert masked.entropy().item() == pytest.approx(math.log(2))
    assert masked.kl(masked).item() == 0.0
    assert masked.log_prob(torch.tensor(2)).item() == -torch.inf


def test_a_switch_that_is_all_but_certain_has_no_entropy_and_finite_log_probabilities():
    pi = Bernoulli(torch.tensor([200.0, -200.0]))
    assert pi.entropy().item() == pytest.approx(0.0, abs=1e-6)
    assert pi.log_prob(torch.tensor([0, 1])).item() == pytest.approx(-400)


# Samples


@pytest.mark.parametrize("name", KINDS)
def test_samples_repeat_with_the_generator_and_have_the_shape_of_actions(name):
    make, n_params = KINDS[name]
    pi = make(normal(6, 5, n_params))
    draws = [pi.sample(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert draws[0].shape == pi.mode().shape
    assert pi.log_prob(draws[0]).shape == pi.entropy().shape == pi.kl(pi).shape == (6, 5)
    torch.testing.assert_close(pi.kl(pi), torch.zeros(6, 5))


@pytest.mark.parametrize("name", KINDS)
def test_the_mean_of_minus_log_prob_over_samples_is_the_entropy(name):
    make, n_params = KINDS[name]
    pi = make((0.5 * normal(n_params)).expand(100_000, n_params))
    sampled = -pi.log_prob(pi.sample(torch.Generator().manual_seed(0))).mean()
    torch.testing.assert_close(sampled, pi.entropy()[0], atol=0.01, rtol=0.01)


def test_samples_of_gaussians_carry_gradients():
    params = torch.zeros(4, requires_grad=True)
    DiagonalGaussian(params).sample(torch.Generator().manual_seed(0)).sum().backward()
    noise = torch.randn(2, generator=torch.Generator().manual_seed(0))
    assert params.grad is not None
    torch.testing.assert_close(params.grad, torch.cat([torch.ones(2), noise]))


# Which one


def test_each_kind_of_actions_has_its_distribution():
    assert distribution_for(DiscreteActions(2)) is Categorical
    assert distribution_for(BinaryActions(2, (2,))) is Bernoulli
    assert distribution_for(box(2)) is DiagonalGaussian
    assert distribution_for(box(2), squash=True) is TanhGaussian
    pi = distribution_for(MultiDiscreteActions((2, 3), (0, 0), (2,)))(torch.zeros(7, 5))
    assert pi.mode().shape == (7, 2)


def test_a_model_that_names_none_is_categorical():
    assert distribution_of(object()) is Categorical
