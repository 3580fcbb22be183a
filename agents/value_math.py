"""Targets, losses and priorities of value learning. Knows tensors only, nothing of models, buffers, optimisers.

Transitions have shape (N,), sequences (L, N), time first. Nothing here follows gradients into a target: give it values that
were computed without.

    discount   gamma^k for a reward sum over k steps, and 0 where the episode terminated within them. A truncation
               bootstraps: it has the discount of a step like any other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """Return (..., *rest) of `values` (..., A, *rest): what belongs to `action` (...) int64. rest: nothing or one axis."""
    n_rest = values.ndim - action.ndim - 1
    index = action.reshape(*action.shape, *([1] * (n_rest + 1))).expand(*action.shape, 1, *values.shape[values.ndim - n_rest :])
    return values.gather(action.ndim, index).squeeze(action.ndim)


def huber(error: Tensor, delta: float) -> Tensor:
    """Return error^2 / 2 up to |error| = delta and delta (|error| - delta / 2) beyond; delta 0: error^2 / 2 everywhere."""
    if delta == 0:
        return 0.5 * error.square()
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


# Distributions over returns


def project_categorical(position: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """Return the distribution on `support` that is nearest to one on other positions (Bellemare et al. 2017, algorithm 1).

    The mass at a position goes to its two neighbours on the support, more to the nearer; beyond the ends, to the end.

    Args:
        position: where the mass is, (N, J).
        probability: how much is there, (N, J).
        support: K equally spaced values, rising.

    Returns:
        Probabilities (N, K).
    """
    low, high = support[0], support[-1]
    spacing = (high - low) / (len(support) - 1)
    place = position.clamp(low, high).unsqueeze(-1)  # (N, J, 1)
    share = (1 - (place - support).abs() / spacing).clamp(min=0)  # (N, J, K)
    return (share * probability.unsqueeze(-1)).sum(dim=-2)


def categorical_cross_entropy(log_probs: Tensor, target: Tensor) -> Tensor:
    """Return -sum(target log_probs) (N,) of distributions (N, K)."""
    return -(target * log_probs).sum(dim=-1)


def quantile_huber(quantile: Tensor, fraction: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """Return the quantile Huber loss (N,): summed over the quantiles, averaged over the targets.

        |fraction - 1{u < 0}| huber(u) / kappa     with u = target - quantile

    (Dabney et al. 2018, arXiv:1710.10044 eq. 10; the division by kappa is from arXiv:1806.06923 eq. 3.)

    Args:
        quantile: predicted values (N, M), with gradients.
        fraction: which quantile each of them is, between 0 and 1, (N, M) or (M,).
        target: samples of the target (N, J).
        kappa: where the loss turns from squared to linear; 0 is plain quantile regression.
    """
    error = target.unsqueeze(-2) - quantile.unsqueeze(-1)  # (N, M, J)
    loss = error.abs() if kappa == 0 else huber(error, kappa) / kappa
    side = (fraction.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
    return (side * loss).mean(dim=-1).sum(dim=-1)


# Rescaled values


def rescale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, which makes large returns small (arXiv:1805.11593)."""
    size = value.abs()
    return value.sign() * size / ((size + 1).sqrt() + 1) + epsilon * value


def unrescale(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Return the x with rescale(x) = value. Written without the difference of nearly equal numbers."""
    size = value.abs() + 1 + epsilon
    root = 2 * size / ((1 + 4 * epsilon * size).sqrt() + 1)
    return value.sign() * (root.square() - 1)


# Sequences


def n_step_targets(reward: Tensor, discount: Tensor, blind: Tensor, value: Tensor, n_steps: int) -> Tensor:
    """Return the sum of the rewards of `n_steps` rows and the discounted value of the row after them. (L, N)

    The window ends early at a blind row and bootstraps from there, and at a discount of zero, where it does not.

    Args:
        reward: of the step that row t made, (L, N).
        discount: gamma, and 0 where that step terminated the episode, (L, N).
        blind: (L, N) bool, True where the target would need a row t + 1 that is not what row t led to: in the last row of the
            sequence, in the row of an episode's last observation. Its target is the value itself: leave it out of the loss.
        value: what to bootstrap from in row t, V(obs[t]) or max Q, (L, N).
    """
    target = value
    for _ in range(n_steps):
        target = torch.where(blind, value, reward + discount * _following(target))
    return target


def retrace_targets(reward: Tensor, discount: Tensor, blind: Tensor, taken: Tensor, value: Tensor, trace: Tensor) -> Tensor:
    """Return targets of Q(obs[t], action[t]) by Retrace (Munos et al. 2016, arXiv:1606.02647). (L, N)

        G[t] = reward[t] + discount[t] (value[t+1] + trace[t+1] (G[t+1] - taken[t+1]))

    Args:
        reward, discount, blind: as in `n_step_targets`.
        taken: Q(obs[t], action[t]), (L, N).
        value: sum over a of pi(a | obs[t]) Q(obs[t], a), (L, N).
        trace: lambda min(1, pi(action | obs) / mu(action | obs)), (L, N); mu is the policy that acted.
    """
    target = torch.where(blind, value, reward)  # right in the last row
    for t in range(len(reward) - 2, -1, -1):
        correction = torch.where(blind[t + 1], 0.0, trace[t + 1] * (target[t + 1] - taken[t + 1]))
        target[t] = torch.where(blind[t], value[t], reward[t] + discount[t] * (value[t + 1] + correction))
    return target


def blind_rows(valid: Tensor, terminated: Tensor, first: Tensor) -> Tensor:
    """Return what `n_step_targets` calls blind: (L, N) bool.

    Args:
        valid: the row is a step; a row that is none still holds the observation that the row before led to.
        terminated: the step ended its episode in a state of value zero, so that it needs no row after it.
        first: the row begins an episode, so that the row before did not lead to it.
    """
    cut = torch.ones_like(valid)
    cut[:-1] = first[1:]
    return ~valid | (cut & ~terminated)


def mixed_priority(error: Tensor, counts: Tensor, eta: float = 0.9) -> Tensor:
    """Return eta max |error| + (1 - eta) mean |error| over the rows that count, (N,); 0 where none does (R2D2).

    Args:
        error: TD errors (L, N).
        counts: (L, N) bool.
        eta: 1 for the largest error alone, 0 for the mean.
    """
    size = torch.where(counts, error.abs(), 0.0)
    mean = size.sum(dim=0) / counts.sum(dim=0).clamp(min=1)
    return eta * size.amax(dim=0) + (1 - eta) * mean


def _following(rows: Tensor) -> Tensor:
    """Return row t + 1 in row t, zeros in the last."""
    return torch.cat([rows[1:], torch.zeros_like(rows[:1])])


# Continuous actions, in [-1, 1]


def smoothed_action(action: Tensor, noise: Tensor, scale: float, limit: float) -> Tensor:
    """Return TD3's target actions: standard normal `noise`, scaled, clipped to +-limit; then the sum, clipped to [-1, 1]."""
    return (action + (noise * scale).clamp(-limit, limit)).clamp(-1, 1)


def tanh_log_slope(before: Tensor) -> Tensor:
    """Return log(1 - tanh(x)^2), exact also where tanh(x) rounds to 1: what log-probabilities lose by squashing."""
    return 2 * (math.log(2) - before - functional.softplus(-2 * before))


# Importance weights


def weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    """Return mean(weight loss) (), the loss of a prioritized batch; without weights the mean."""
    return loss.mean() if weight is None else (weight * loss).mean()
