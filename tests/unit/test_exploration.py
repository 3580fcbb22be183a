"""Epsilon-greedy, its ladder, and noise, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parl_lite.agents.exploration import (
    OrnsteinUhlenbeck,
    add_noise,
    epsilon_greedy,
    epsilon_ladder,
    greedy_probability,
)


def test_the_ladder_by_hand():
    # 0.4, 0.4^(1 + 7/2), 0.4^8
    assert epsilon_ladder(np.arange(3), 3).tolist() == pytest.approx([0.4, 0.016190861620062104, 0.00065536])
    assert epsilon_ladder(0, 1) == pytest.approx(0.4)


def test_the_ladder_is_one_over_all_machines():
    whole = epsilon_ladder(np.arange(360), 360)
    parts = [epsilon_ladder(np.arange(start, start + 90), 360) for start in range(0, 360, 90)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (np.diff(whole) < 0).all()


def test_epsilon_zero_is_greedy_and_one_is_uniform():
    q = torch.tensor([[0.0, 3.0, 1.0]]).expand(9000, 3)
    assert (epsilon_greedy(q, 0.0) == 1).all()
    counts = epsilon_greedy(q, 1.0, torch.Generator().manual_seed(0)).bincount()
    assert counts.tolist() == pytest.approx([3000] * 3, rel=0.1)


def test_each_row_has_its_epsilon():
    q = torch.tensor([0.0, 1.0]).expand(4000, 2, 2)
    action = epsilon_greedy(q, torch.tensor([0.0, 0.5]), torch.Generator().manual_seed(0))
    assert (action[:, 0] == 1).all()
    assert action[:, 1].float().mean().item() == pytest.approx(0.75, abs=0.03)


def test_the_probability_of_an_action_is_what_epsilon_greedy_draws():
    q = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    assert greedy_probability(q, torch.tensor([0, 1]), 0.5).tolist() == pytest.approx([0.25, 0.75])
    assert greedy_probability(q, torch.tensor([0, 1]), torch.tensor([0.2, 0.2])).tolist() == pytest.approx([0.1, 0.9])


def test_noise_has_its_scale_and_actions_stay_in_bounds():
    noisy = add_noise(torch.zeros(10000, 1), 0.1, torch.Generator().manual_seed(0))
    assert noisy.std().item() == pytest.approx(0.1, rel=0.05)
    assert add_noise(torch.ones(1000, 2), 5.0, torch.Generator().manual_seed(0)).abs().max() == 1.0


def test_remembered_noise_by_hand():
    noise = OrnsteinUhlenbeck((2, 1), theta=0.25, sigma=0.0)
    noise.position = torch.tensor([[4.0], [8.0]])
    assert noise.step().tolist() == [[3.0], [6.0]]
    assert noise.step(torch.tensor([True, False])).tolist() == [[0.0], [4.5]]
    # with x' = (1 - theta) x + sigma N, the variance settles at sigma^2 / (1 - (1 - theta)^2)
    noise = OrnsteinUhlenbeck((5000, 1), theta=0.5, sigma=0.3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        last = noise.step(generator=generator)
    assert last.var().item() == pytest.approx(0.09 / 0.75, rel=0.05)
