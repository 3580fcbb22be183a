"""Targets, losses and priorities of value learning, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from parl_lite.agents.value_math import (
    blind_rows,
    categorical_cross_entropy,
    huber,
    mixed_priority,
    n_step_targets,
    of_action,
    project_categorical,
    quantile_huber,
    rescale,
    retrace_targets,
    smoothed_action,
    tanh_log_slope,
    unrescale,
    weighted_mean,
)


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32).unsqueeze(1)


def mask(*marks: int) -> torch.Tensor:
    return torch.tensor(marks, dtype=torch.bool).unsqueeze(1)


def test_of_action_picks_numbers_and_rows():
    values = torch.arange(12).reshape(2, 3, 2)  # (N, A, K)
    action = torch.tensor([2, 0])
    assert of_action(values, action).tolist() == [[4, 5], [6, 7]]
    assert of_action(values[..., 0], action).tolist() == [4, 6]
    sequences = torch.arange(8).reshape(2, 2, 2)  # (L, N, A)
    assert of_action(sequences, torch.tensor([[0, 1], [1, 0]])).tolist() == [[0, 3], [5, 6]]


def test_huber_is_squared_near_zero_and_linear_beyond():
    error = torch.tensor([-3.0, -0.5, 0.0, 2.0])
    assert huber(error, 1.0).tolist() == [2.5, 0.125, 0.0, 1.5]  # 3 - 1/2, 0.25 / 2, 0, 2 - 1/2
    assert huber(error, 0.0).tolist() == [4.5, 0.125, 0.0, 2.0]


# C51


def test_the_projection_splits_mass_between_neighbours():
    # 0.75 lies a quarter of the way from 1 to 0: 3/4 of its mass goes to 1; 0 is an atom
    support = torch.tensor([-1.0, 0.0, 1.0])
    projected = project_categorical(torch.tensor([[0.75, 0.0]]), torch.tensor([[0.4, 0.6]]), support)
    assert projected.tolist() == [pytest.approx([0.0, 0.7, 0.3])]


def test_the_projection_puts_what_lies_beyond_onto_the_ends():
    support = torch.tensor([-1.0, 0.0, 1.0])
    projected = project_categorical(torch.tensor([[-7.0, 2.0, 1.0]]), torch.tensor([[0.2, 0.5, 0.3]]), support)
    assert projected.tolist() == [pytest.approx([0.2, 0.0, 0.8])]


def test_the_projection_keeps_mass_and_mean():
    generator = torch.Generator().manual_seed(0)
    position = torch.rand(50, 51, generator=generator) * 18 - 9
    probability = torch.rand(50, 51, generator=generator).softmax(dim=-1)
    support = torch.linspace(-10, 10, 51)
    projected = project_categorical(position, probability, support)
    torch.testing.assert_close(projected.sum(dim=-1), torch.ones(50))
    torch.testing.assert_close(projected @ support, (position * probability).sum(dim=-1), atol=1e-4, rtol=1e-4)


def test_the_cross_entropy_is_least_where_the_distributions_agree():
    target = torch.tensor([[0.25, 0.75]])
    loss = categorical_cross_entropy(torch.tensor([[0.5, 0.5]]).log(), target)
    assert loss.tolist() == pytest.approx([math.log(2)])
    assert categorical_cross_entropy(target.log(), target).item() < loss.item()


# QR-DQN and IQN


def test_the_quantile_huber_loss_by_hand():
    # quantile 0 at fraction 1/4: targets 2 and -0.5 give u = 2 and -0.5: 1/4 (2 - 1/2) and 3/4 (1/8), mean 0.234375
    # quantile 1 at fraction 3/4: u = 1 and -1.5: 3/4 (1/2) and 1/4 (1.5 - 1/2), mean 0.3125
    loss = quantile_huber(torch.tensor([[0.0, 1.0]]), torch.tensor([0.25, 0.75]), torch.tensor([[2.0, -0.5]]))
    assert loss.tolist() == pytest.approx([0.234375 + 0.3125])


def test_kappa_divides_the_quantile_loss_and_zero_makes_it_linear():
    quantile, fraction, target = torch.tensor([[0.0]]), torch.tensor([[0.25]]), torch.tensor([[3.0]])
    assert quantile_huber(quantile, fraction, target, 2.0).item() == pytest.approx(0.25 * 2 * (3 - 1) / 2)
    assert quantile_huber(quantile, fraction, target, 0.0).item() == pytest.approx(0.25 * 3)


def test_the_quantile_loss_is_least_at_the_quantile():
    target = torch.arange(100.0).unsqueeze(0)
    losses = [quantile_huber(torch.tensor([[q]]), torch.tensor([0.9]), target, 0.0).item() for q in (50.0, 80.0, 89.5, 95.0)]
    assert min(losses) == losses[2]


# h


def test_rescaling_by_hand():
    # h(3) = sqrt(4) - 1 + 0.003, h(-8) = -(3 - 1) - 0.008, h(0) = 0
    assert rescale(torch.tensor([3.0, -8.0, 0.0])).tolist() == pytest.approx([1.003, -2.008, 0.0])


def test_unrescaling_undoes_it_from_tiny_to_huge():
    value = torch.tensor([-1e6, -37.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 1e3, 1e6])
    torch.testing.assert_close(unrescale(rescale(value)), value, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(unrescale(rescale(value, 0.0), 0.0), value, rtol=1e-4, atol=1e-6)


# Sequences


def test_n_step_targets_by_hand():
    # gamma 1/2, three steps: row 0: 1 + 2/2 + 4/4 + 80/8 = 13; row 1: 2 + 4/2 + 8/4 + 160/8 = 26
    # rows 2 and 3 bootstrap from the last row, the only blind one: 4 + 8/2 + 160/4, 8 + 160/2
    reward, value = column(1, 2, 4, 8, 0), column(10, 20, 40, 80, 160)
    targets = n_step_targets(reward, torch.full_like(reward, 0.5), mask(0, 0, 0, 0, 1), value, 3)
    assert targets.squeeze(1).tolist() == [13.0, 26.0, 48.0, 88.0, 160.0]


def test_n_step_targets_stop_at_a_termination_and_bootstrap_at_a_truncation():
    # rows: 0 and 1 steps, 1 terminates; 2 begins an episode, 3 is truncated, 4 holds its last observation, 5 begins the next
    reward = column(1, 2, 4, 8, 99, 16)
    discount = column(0.5, 0, 0.5, 0.5, 0.5, 0.5)
    valid, terminated, first = mask(1, 1, 1, 1, 0, 1), mask(0, 1, 0, 0, 0, 0), mask(1, 0, 1, 0, 0, 1)
    blind = blind_rows(valid, terminated, first)
    assert blind.squeeze(1).tolist() == [False, False, False, False, True, True]
    targets = n_step_targets(reward, discount, blind, column(10, 20, 30, 40, 50, 60), 3)
    # 1 + 2/2; 2; 4 + 8/2 + 50/4; 8 + 50/2
    assert targets.squeeze(1).tolist()[:4] == [2.0, 2.0, 20.5, 33.0]


def test_a_truncated_row_is_blind_where_its_last_observation_is_not_there():
    valid, terminated, first = mask(1, 1, 1), mask(0, 0, 1), mask(1, 1, 0)
    blind = blind_rows(valid, terminated, first)
    assert blind.squeeze(1).tolist() == [True, False, False]  # a terminated last row needs nothing after it
    targets = n_step_targets(column(9, 1, 2), column(0.5, 0.5, 0), blind, column(10, 20, 30), 5)
    assert targets.squeeze(1).tolist() == [10.0, 2.0, 2.0]


def test_retrace_by_hand():
    # gamma 1/2; row 2 is the last, blind: G[2] = value 40
    # G[1] = 2 + (40 + 0) / 2 = 22;  G[0] = 1 + (20 + 0.8 (22 - 12)) / 2 = 15
    arguments = (column(1, 2, 0), column(0.5, 0.5, 0.5), mask(0, 0, 1), column(11, 12, 13), column(10, 20, 40))
    assert retrace_targets(*arguments, column(9, 0.8, 9)).squeeze(1).tolist() == pytest.approx([15.0, 22.0, 40.0])


def test_retrace_without_traces_is_one_step_and_with_full_ones_on_policy_the_return():
    reward, discount, blind = column(1, 2, 4), column(0.5, 0.5, 0), mask(0, 0, 0)
    taken = value = column(10, 20, 30)
    one_step = retrace_targets(reward, discount, blind, taken, value, column(0, 0, 0))
    assert one_step.squeeze(1).tolist() == [11.0, 17.0, 4.0]
    full = retrace_targets(reward, discount, blind, taken, value, column(1, 1, 1))
    assert full.squeeze(1).tolist() == [3.0, 4.0, 4.0]  # 1 + 2/2 + 4/4, 2 + 4/2, 4


def test_priorities_mix_the_largest_and_the_mean_error_of_what_counts():
    error = torch.tensor([[1.0, 5.0], [-3.0, 7.0], [100.0, 9.0]])
    counts = torch.tensor([[1, 0], [1, 0], [0, 0]], dtype=torch.bool)
    assert mixed_priority(error, counts, 0.9).tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 0.0])


# Continuous actions, weights


def test_target_noise_is_clipped_and_then_the_action():
    action, noise = torch.tensor([0.0, 0.0, 0.9, -0.9]), torch.tensor([1.0, -5.0, 1.0, -9.0])
    assert smoothed_action(action, noise, 0.2, 0.5).tolist() == pytest.approx([0.2, -0.5, 1.0, -1.0])


def test_the_slope_of_tanh_is_exact_where_tanh_rounds_to_one():
    before = torch.tensor([0.0, 1.0, -1.0, 20.0])
    # 1 - tanh(x)^2 = 4 / (e^x + e^-x)^2, whose logarithm is 2 log 2 - 2 |x| for large x
    expected = [0.0, math.log(1 - math.tanh(1) ** 2), math.log(1 - math.tanh(1) ** 2), 2 * math.log(2) - 40]
    assert tanh_log_slope(before).tolist() == pytest.approx(expected)


def test_importance_weights_multiply_the_losses():
    loss = torch.tensor([2.0, 4.0])
    assert weighted_mean(loss, torch.tensor([1.0, 0.25])).item() == 1.5
    assert weighted_mean(loss, None).item() == 3.0
