"""Returns and advantages: discounted sums, n-step, TD(lambda), GAE, V-trace. Knows tensors only, nothing of models.

Every function takes columns of shape (T, B), time first, and means by row t the step from obs[t] to what came after it:

    reward[t]      for that step
    value[t]       V(obs[t])
    next_value[t]  V of the observation the step led to: obs[t + 1], and the *final* observation where the episode
                   ended there (not the first one of the next episode, which some environments put into obs[t + 1])
    terminated[t]  the step ended its episode in a state whose value is zero by definition: nothing is bootstrapped
    truncated[t]   the step was the last for another reason (a time limit): bootstrap from next_value[t], but no
                   further, since row t + 1 does not belong to the same episode
    valid[t]       False for a row that is no step: the pseudo-step in which an environment with next-step autoreset
                   ignores the action and resets. Its correction is zero, so that neither its reward nor its ratio count

All of them are the same backward recursion, x[t] = delta[t] + decay[t] * x[t + 1], with different deltas and decays. A
cut after t is decay[t] = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """What happened, row by row; all (T, B), reward float32, the rest bool."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor


class VTrace(NamedTuple):
    """Targets of the value function and advantages of the policy gradient; both (T, B) float32, without gradients."""

    target: Tensor
    advantage: Tensor


def discounted_returns(rows: Rows, next_value: Tensor, gamma: float) -> Tensor:
    """Return the discounted sum of rewards to the end of each episode or of the rollout, bootstrapped there. (T, B)"""
    carry = gamma * _goes_on(rows)
    last = torch.zeros_like(carry)
    last[-1] = gamma
    bootstrap = torch.where(rows.truncated, gamma, last) * ~rows.terminated * next_value
    return _backward(rows.valid * (rows.reward + bootstrap), carry)


def n_step_returns(rows: Rows, next_value: Tensor, gamma: float, n: int) -> Tensor:
    """Return the discounted sum of the next `n` rewards, bootstrapped after them. (T, B)

    Where the episode or the rollout ends sooner, the sum ends there, and is bootstrapped unless it was a termination.
    """
    bootstrap = gamma * ~rows.terminated * next_value
    returns = rows.reward + bootstrap
    goes_on = _goes_on(rows)
    goes_on[-1] = 0.0
    for _ in range(n - 1):  # a return of one step more is the reward, then the following row's return of one step less
        following = torch.cat([returns[1:], returns[-1:]])
        returns = rows.reward + torch.where(goes_on.bool(), gamma * following, bootstrap)
    return rows.valid * returns


def td_lambda_returns(rows: Rows, next_value: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Return the lambda-returns of TD(lambda) (Sutton and Barto 2018, 12.1): the mean of all n-step returns, the one of
    n steps weighted by (1 - lambda) lambda^(n-1) and the last by what is left. (T, B)

        return[t] = reward[t] + gamma ((1 - lambda) next_value[t] + lambda return[t+1])
    """
    goes_on = _goes_on(rows)
    goes_on[-1] = 0.0
    delta = rows.reward + gamma * ~rows.terminated * next_value * (1 - lambda_ * goes_on)
    return _backward(rows.valid * delta, gamma * lambda_ * goes_on)


def gae(rows: Rows, value: Tensor, next_value: Tensor, gamma: float, lambda_: float) -> Tensor:
    """Return generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438); add `value` for returns. (T,
    B)"""
    delta = rows.reward + gamma * ~rows.terminated * next_value - value
    return _backward(rows.valid * delta, gamma * lambda_ * _goes_on(rows))


@torch.no_grad()
def vtrace(
    rows: Rows,
    value: Tensor,
    next_value: Tensor,
    log_ratio: Tensor,
    gamma: float,
    lambda_: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> VTrace:
    """Return V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561, section 4.1).

        delta[t]     = rho[t] (reward[t] + gamma next_value[t] - value[t])           rho = min(rho_bar, ratio)
        target[t]    = value[t] + delta[t] + gamma c[t] (target[t+1] - value[t+1])     c = lambda min(c_bar, ratio)
        advantage[t] = rho[t] (reward[t] + gamma target[t+1] - value[t])

    with gamma = 0 after a termination, and target[t+1] = next_value[t] after a truncation and in the last row. On
    policy, with lambda = rho_bar = c_bar = 1, the target is the discounted return.

    Args:
        log_ratio: log of the learner's probability of the action over the actor's, (T, B).
    """
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_bar)
    discount = gamma * ~rows.terminated
    delta = rho * (rows.reward + discount * next_value - value)
    decay = gamma * lambda_ * ratio.clamp(max=c_bar) * _goes_on(rows)
    correction = _backward(torch.where(rows.valid, delta, 0.0), torch.where(rows.valid, decay, 0.0))
    following = torch.zeros_like(correction)
    following[:-1] = correction[1:] * _goes_on(rows)[:-1]
    advantage = rho * (rows.reward + discount * (next_value + following) - value)
    return VTrace(value + correction, torch.where(rows.valid, advantage, 0.0))


def next_values(value: Tensor, final_value: Tensor | None = None, final_row: Tensor | None = None) -> Tensor:
    """Return next_value (T, B) from the values (T + 1, B) of all observations of a rollout.

    Args:
        value: V(obs), with a row more than there are steps.
        final_value: values (K,) of the final observations that obs does not hold.
        final_row: where they belong (K,): t * B + b.
    """
    following = value[1:]
    if final_value is None or final_row is None:
        return following
    return following.reshape(-1).scatter(0, final_row, final_value).view_as(following)


def _goes_on(rows: Rows) -> Tensor:
    """Return 1.0 where row t + 1 goes on with the episode of row t and t is a step, 0.0 where there is a cut. (T, B)"""
    return (rows.valid & ~rows.terminated & ~rows.truncated).to(rows.reward.dtype)


def _backward(delta: Tensor, decay: Tensor) -> Tensor:
    """Return x with x[t] = delta[t] + decay[t] * x[t + 1] and zero beyond the end. (T, B)"""
    result = torch.empty_like(delta)
    carry = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        carry = torch.addcmul(delta[t], decay[t], carry)
        result[t] = carry
    return result
