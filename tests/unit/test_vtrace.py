"""Returns, GAE and V-trace: by hand, against the definition, and at every kind of boundary between episodes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from parl_lite.agents.returns import Rows, VTrace, discounted_returns, gae, n_step_returns, next_values, td_lambda_returns, vtrace


def column(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1)  # (T, 1)


def rows_of(reward, terminated=(), truncated=(), invalid=()) -> Rows:
    """One environment; terminated, truncated and invalid are row numbers."""
    n = range(len(reward))
    flags = [torch.tensor([[t in chosen] for t in n]) for chosen in (terminated, truncated)]
    return Rows(column(reward), *flags, torch.tensor([[t not in invalid] for t in n]))


def numbers(tensor: Tensor) -> list[float]:
    return tensor.squeeze(1).tolist()


def random_rows(seed: int, steps: int = 12, n_envs: int = 5) -> tuple[Rows, Tensor, Tensor, Tensor]:
    """Return (rows, value, next_value, log_ratio) with ends of both kinds and pseudo-rows after them (NEXT_STEP)."""
    generator = torch.Generator().manual_seed(seed)
    end = torch.rand(steps, n_envs, generator=generator)
    terminated, truncated, valid = end < 0.15, end > 0.85, torch.ones(steps, n_envs, dtype=torch.bool)
    for t in range(1, steps):
        after_end = (terminated | truncated)[t - 1]
        terminated[t] &= ~after_end
        truncated[t] &= ~after_end
        valid[t] = ~after_end
    value, reward = torch.randn(2, steps + 1, n_envs, generator=generator)
    log_ratio = 0.7 * torch.randn(steps, n_envs, generator=generator)
    return Rows(reward[1:], terminated, truncated, valid), value[:-1], value[1:], log_ratio


def by_definition(
    rows: Rows, value: Tensor, next_value: Tensor, log_ratio: Tensor, gamma: float, lambda_: float, rho: float, c: float
) -> VTrace:
    """Sum deltas forward, weighted by products of c, as the paper writes it; one row at a time."""
    target, advantage = value.clone(), torch.zeros_like(value)
    steps, n_envs = value.shape
    ratio = log_ratio.exp()

    def discount(t: int, b: int) -> float:
        return 0.0 if rows.terminated[t, b] else gamma

    def last(t: int, b: int) -> bool:
        return bool(rows.terminated[t, b] or rows.truncated[t, b]) or t == steps - 1 or not rows.valid[t + 1, b]

    for b in range(n_envs):
        for s in range(steps):
            weight = 1.0
            for t in range(s, steps):
                if not rows.valid[t, b]:
                    break
                bootstrapped = rows.reward[t, b] + discount(t, b) * next_value[t, b]
                target[s, b] += weight * min(rho, ratio[t, b]) * (bootstrapped - value[t, b])
                if last(t, b):
                    break
                weight *= gamma * lambda_ * min(c, ratio[t, b])
        for t in range(steps):
            if rows.valid[t, b]:
                following = next_value[t, b] if last(t, b) else target[t + 1, b]
                step = rows.reward[t, b] + discount(t, b) * following
                advantage[t, b] = min(rho, ratio[t, b]) * (step - value[t, b])
    return VTrace(target, advantage)


# GAE and discounted returns


def test_gae_after_a_termination_bootstraps_nothing():
    advantage = gae(rows_of([1, 1, 1], terminated=[1]), column([5, 5, 100]), column([5, 100, 100]), 1.0, 1.0)
    assert numbers(advantage) == [-3, -4, 1]
    assert numbers(advantage + column([5, 5, 100])) == [2, 1, 101]


def test_gae_after_a_truncation_bootstraps_from_the_final_observation():
    advantage = gae(rows_of([1, 1, 1], truncated=[1]), column([5, 5, 100]), column([5, 7, 100]), 1.0, 1.0)
    assert numbers(advantage) == [4, 3, 1]


def test_gae_of_a_termination_in_the_last_row_uses_no_value():
    advantage = gae(rows_of([1, 1, 1], terminated=[2]), column([2, 2, 2]), column([2, 2, 2]), 0.99, 0.95)
    assert numbers(advantage)[2] == -1


def test_gae_with_lambda_zero_is_the_one_step_error():
    rows, value, next_value, _ = random_rows(1)
    expected = torch.where(rows.valid, rows.reward + 0.9 * ~rows.terminated * next_value - value, 0.0)
    torch.testing.assert_close(gae(rows, value, next_value, 0.9, 0.0), expected)


def test_discounted_returns_by_hand():
    rows = rows_of([1, 2, 4, 8, 16], terminated=[0], truncated=[2])
    assert numbers(discounted_returns(rows, column([99, 99, 10, 99, 100]), 0.5)) == [1, 6.5, 9, 41, 66]


def test_n_step_returns_by_hand():
    # gamma 0.5, next values 10, 20, 30, 40, 50; row 2 truncated, row 4 the end of the rollout
    rows, next_value = rows_of([1, 2, 4, 8, 16], truncated=[2]), column([10, 20, 30, 40, 50])
    assert numbers(n_step_returns(rows, next_value, 0.5, 1)) == [6, 12, 19, 28, 41]
    # 1 + 2/2 + 20/4, 2 + 4/2 + 30/4, cut: 4 + 30/2, 8 + 16/2 + 50/4, cut: 16 + 50/2
    assert numbers(n_step_returns(rows, next_value, 0.5, 2)) == [7, 11.5, 19, 28.5, 41]


def test_n_step_returns_after_a_termination_bootstrap_nothing():
    rows = rows_of([1, 2, 4], terminated=[1])
    assert numbers(n_step_returns(rows, column([10, 20, 30]), 0.5, 5)) == [2, 2, 19]


@pytest.mark.parametrize("seed", range(3))
def test_more_steps_than_rows_give_the_discounted_return(seed):
    rows, _, next_value, _ = random_rows(seed)
    torch.testing.assert_close(n_step_returns(rows, next_value, 0.9, 99), discounted_returns(rows, next_value, 0.9))


def test_td_lambda_by_hand():
    # gamma = lambda = 0.5: return[2] = 4 + 0.5*30 = 19, return[1] = 2 + 0.5 (0.5*20 + 0.5*19), ...
    rows, next_value = rows_of([1, 2, 4]), column([10, 20, 30])
    assert numbers(td_lambda_returns(rows, next_value, 0.5, 0.5)) == [1 + 0.25 * 10 + 0.25 * 11.75, 11.75, 19]
    # the mean of n-step returns: of 1, 2 and 3 steps 6, 7, 6.75 with weights 1/2, 1/4 and the rest
    assert numbers(td_lambda_returns(rows, next_value, 0.5, 0.5))[0] == 0.5 * 6 + 0.25 * 7 + 0.25 * 6.75
    assert numbers(td_lambda_returns(rows_of([1, 2, 4], terminated=[1]), next_value, 0.5, 0.5)) == [4, 2, 19]


@pytest.mark.parametrize("seed", range(3))
def test_td_lambda_is_gae_plus_the_value_and_its_limits_are_one_step_and_all(seed):
    rows, value, next_value, _ = random_rows(seed)
    expected = rows.valid * (gae(rows, value, next_value, 0.9, 0.7) + value)
    torch.testing.assert_close(td_lambda_returns(rows, next_value, 0.9, 0.7), expected)
    one_step, all_steps = (td_lambda_returns(rows, next_value, 0.9, weight) for weight in (0.0, 1.0))
    torch.testing.assert_close(one_step, n_step_returns(rows, next_value, 0.9, 1))
    torch.testing.assert_close(all_steps, discounted_returns(rows, next_value, 0.9))


# V-trace


def test_vtrace_by_hand():
    # ratios 2 (bounded to 1) and 0.5; gamma 0.5, values 1, 2, bootstrap 4
    # delta[1] = 0.5 (3 + 0.5*4 - 2) = 1.5            target[1] = 2 + 1.5 = 3.5
    # delta[0] = 1 (1 + 0.5*2 - 1) = 1                target[0] = 1 + 1 + 0.5*1*1.5 = 2.75
    # advantage[0] = 1 (1 + 0.5*3.5 - 1) = 1.75       advantage[1] = 0.5 (3 + 0.5*4 - 2) = 1.5
    result = vtrace(rows_of([1, 3]), column([1, 2]), column([2, 4]), column([math.log(2), math.log(0.5)]), 0.5)
    assert numbers(result.target) == pytest.approx([2.75, 3.5])
    assert numbers(result.advantage) == pytest.approx([1.75, 1.5])


def test_bounds_above_the_ratio_leave_it_alone():
    # as above with rho_bar = 4 and c_bar = 1: delta[0] = 2, so target[0] = 1 + 2 + 0.5*1*1.5; advantage[0] = 2 * 1.75
    log_ratio = column([math.log(2), math.log(0.5)])
    result = vtrace(rows_of([1, 3]), column([1, 2]), column([2, 4]), log_ratio, 0.5, rho_bar=4.0)
    assert numbers(result.target) == pytest.approx([3.75, 3.5])
    assert numbers(result.advantage) == pytest.approx([3.5, 1.5])


def test_a_termination_bootstraps_nothing_and_cuts():
    rows = rows_of([1, 3, 5], terminated=[1])
    result = vtrace(rows, column([1, 2, 7]), column([2, 1000, 8]), column([0, 0, 0]), 0.5)
    # target[1] = 3; target[0] = 1 + 0.5*3; target[2] = 5 + 0.5*8
    assert numbers(result.target) == [2.5, 3, 9]
    assert numbers(result.advantage) == [1.5, 1, 2]


def test_a_truncation_bootstraps_from_its_next_value_and_cuts():
    rows = rows_of([1, 3, 5], truncated=[1])
    result = vtrace(rows, column([1, 2, 7]), column([2, 6, 8]), column([0, 0, 0]), 0.5)
    # target[1] = 3 + 0.5*6; target[0] = 1 + 0.5*6; target[2] = 5 + 0.5*8
    assert numbers(result.target) == [4, 6, 9]
    assert numbers(result.advantage) == [3, 4, 2]


def test_the_pseudo_row_of_an_autoreset_has_no_effect_whatever_is_in_it():
    # row 1 is truncated; row 2 is the pseudo-step from its final observation (value 6), row 3 the next episode
    rows = rows_of([1, 3, 1000, 5], truncated=[1], invalid=[2])
    log_ratio = column([0, 0, 50, 0])
    result = vtrace(rows, column([1, 2, 6, 7]), column([2, 6, 7, 8]), log_ratio, 0.5)
    assert numbers(result.target) == [4, 6, 6, 9]
    assert numbers(result.advantage) == [3, 4, 0, 2]


def test_a_rollout_may_begin_with_a_pseudo_row_and_end_with_an_episode():
    rows = rows_of([1000, 1], truncated=[1], invalid=[0])
    result = vtrace(rows, column([3, 2]), column([2, 4]), column([0, 0]), 0.5)
    assert numbers(result.target) == [3, 3]
    assert numbers(result.advantage) == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_vtrace_is_what_the_paper_defines(seed):
    rows, value, next_value, log_ratio = random_rows(seed)
    bounds = (0.9, 0.8, 1.5, 1.1)
    result = vtrace(rows, value, next_value, log_ratio, *bounds)
    expected = by_definition(rows, value, next_value, log_ratio, *bounds)
    torch.testing.assert_close(result.target, expected.target)
    torch.testing.assert_close(result.advantage, expected.advantage)


@pytest.mark.parametrize("seed", range(5))
def test_on_policy_the_target_is_the_discounted_return(seed):
    rows, value, next_value, _ = random_rows(seed)
    result = vtrace(rows, value, next_value, torch.zeros_like(value), 0.9)
    expected = torch.where(rows.valid, discounted_returns(rows, next_value, 0.9), value)
    torch.testing.assert_close(result.target, expected)
    torch.testing.assert_close(result.advantage, torch.where(rows.valid, expected - value, 0.0))


def test_on_policy_with_lambda_the_target_is_that_of_gae():
    rows, value, next_value, _ = random_rows(3)
    result = vtrace(rows, value, next_value, torch.zeros_like(value), 0.9, 0.8)
    torch.testing.assert_close(result.target, value + gae(rows, value, next_value, 0.9, 0.8))


def test_the_episodes_of_a_rollout_are_as_each_alone():
    # two segments one after the other, the first of which ends in every environment
    first, second = random_rows(1), random_rows(2)
    ended = first[0].truncated.clone()
    ended[-1] = ~first[0].terminated[-1] & first[0].valid[-1]
    first = (first[0]._replace(truncated=ended), *first[1:])
    rows = Rows(*map(torch.cat, zip(first[0], second[0], strict=True)))
    together = vtrace(rows, *map(torch.cat, zip(first[1:], second[1:], strict=True)), 0.9, 0.8)
    apart = [vtrace(*segment, 0.9, 0.8) for segment in (first, second)]
    for ours, theirs in zip(together, map(torch.cat, zip(*apart, strict=True)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_targets_carry_no_gradient():
    value = column([1, 2]).requires_grad_()
    result = vtrace(rows_of([1, 3]), value, column([2, 4]), column([0, 0]), 0.5)
    assert not result.target.requires_grad
    assert not result.advantage.requires_grad


def test_next_values_are_the_following_rows_but_for_final_observations():
    value = torch.arange(8.0).view(4, 2)  # T = 3, B = 2
    assert next_values(value).tolist() == [[2, 3], [4, 5], [6, 7]]
    final = next_values(value, torch.tensor([-1.0, -2.0]), torch.tensor([1, 4]))
    assert final.tolist() == [[2, -1], [4, 5], [-2, 7]]
    assert next_values(value, torch.zeros(0), torch.zeros(0, dtype=torch.int64)).tolist() == [[2, 3], [4, 5], [6, 7]]
