"""What the updates of these algorithms share: a step of an optimiser, the one-step target, V-trace. Knows tensors only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float | None = None) -> None:
    """Make one step against the gradient of `loss`, scaled down to `max_grad_norm` if it is longer."""
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimizer.step()


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float | Tensor) -> None:
    """Let all steps from now on have this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = float(learning_rate)


def bootstrapped(reward: Tensor, terminal: Tensor, next_value: Tensor, gamma: float) -> Tensor:
    """Return reward + gamma (1 - terminal) next_value, in the shape of `next_value`.

    Args:
        reward, terminal: (B,) or (B, 1); `terminal` may be bool. Of another shape than `next_value` they would be
            broadcast to (B, B), and learn nonsense without an error.
    """
    reward, terminal = reward.reshape(next_value.shape), terminal.reshape(next_value.shape)
    return reward + gamma * (1 - terminal.to(next_value.dtype)) * next_value


class VTrace(NamedTuple):
    """Targets of the value and advantages of the policy gradient; both (T, B), without gradients."""

    target: Tensor
    advantage: Tensor


@torch.no_grad()
def vtrace(
    ratio: Tensor, discount: Tensor, reward: Tensor, value: Tensor, last_value: Tensor, rho_bar: float, pg_rho_bar: float
) -> VTrace:
    """Return V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561, section 4.1, with c-bar = 1).

    Args:
        ratio: probability of the action by the learner over that by the actor, (T, B).
        discount: gamma, and 0 where the episode ended, (T, B).
        reward, value: of the step, and of the observation before it, (T, B).
        last_value: of the observation after the last step, (B,).
        rho_bar: bound of the ratios in the temporal differences.
        pg_rho_bar: bound of the ratios in the advantages.
    """
    next_value = torch.cat([value[1:], last_value.unsqueeze(0)])  # (T, B)
    delta = ratio.clamp(max=rho_bar) * (reward + discount * next_value - value)
    trace = discount * ratio.clamp(max=1.0)
    correction = torch.zeros_like(value)
    carry = torch.zeros_like(last_value)
    for t in reversed(range(len(delta))):
        carry = delta[t] + trace[t] * carry
        correction[t] = carry
    target = value + correction
    next_target = torch.cat([target[1:], last_value.unsqueeze(0)])  # (T, B)
    return VTrace(target, ratio.clamp(max=pg_rho_bar) * (reward + discount * next_target - value))
