"""Running means and variances that scale observations and rewards. Knows tensors; nothing of environments and clusters.

There is one copy of the statistics that counts, the learner's, so that nothing has to be merged on the way:

    observations   live in the model as buffers. Actors send raw observations, as ever; the learner calls
                   `update_statistics(model, batch)` after it has learned from a batch, and publishes them with the
                   weights. Thus policy and statistics change together: in its first update on a batch, a learner whose
                   policy is that of the actors finds a ratio of exactly one. Evaluation never updates them.
    rewards        concern the learner alone: `ReturnScaler` is an attribute of the algorithm. The environments give the
                   discounted sums whose variance it follows (EnvSettings.normalize_reward).

Both are in checkpoints with all other state. Learners that share a batch merge `Moments` of their parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .trees import row

CLIP = 10.0
"""Normalised observations and rewards are clipped to so many standard deviations, as in baselines."""
_EPSILON = 1e-8


class Moments(NamedTuple):
    """How many numbers, their mean and their variance, each feature by itself."""

    n: Tensor
    mean: Tensor
    variance: Tensor

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets together (Chan et al. 1979)."""
        n = self.n + other.n
        delta = other.mean - self.mean
        squares = self.variance * self.n + other.variance * other.n + delta.square() * self.n * other.n / n
        return Moments(n, self.mean + delta * other.n / n, squares / n)


def moments_of(numbers: Tensor) -> Moments:
    """Return the moments of numbers (N, *shape), in float64; N must not be 0."""
    numbers = numbers.to(torch.float64)
    n = torch.tensor(float(len(numbers)), dtype=torch.float64, device=numbers.device)
    return Moments(n, numbers.mean(dim=0), numbers.var(dim=0, correction=0))


class RunningMoments(nn.Module):
    """Moments of all that it was shown, kept as buffers; begins with mean 0 and variance 1."""

    n: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(1e-4, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))

    @torch.no_grad()
    def update(self, numbers: Tensor) -> None:
        """Take in numbers (N, *shape)."""
        if len(numbers):
            self.merge(moments_of(numbers))

    @torch.no_grad()
    def merge(self, moments: Moments) -> None:
        """Take in the moments of others."""
        merged = Moments(self.n, self.mean, self.variance).merge(moments)
        for buffer, value in zip((self.n, self.mean, self.variance), merged, strict=True):
            buffer.copy_(value)


class ObsNormalizer(RunningMoments):
    """Observations minus their mean, over their standard deviation, clipped; (..., *shape) float32."""

    def forward(self, obs: Tensor) -> Tensor:
        scale = (self.variance + _EPSILON).rsqrt()
        return ((obs - self.mean) * scale).clamp(-CLIP, CLIP).to(torch.float32)


class ReturnScaler(RunningMoments):
    """Rewards over the running standard deviation of their discounted sums, clipped; nothing is subtracted.

    Call it once for each new batch. A batch whose environments do not give `discounted_return` is left as it is.
    """

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return the reward (T, B) float32 to learn from."""
        reward: Tensor = batch["reward"]
        if "discounted_return" not in batch:
            return reward
        self.update(batch["discounted_return"][batch["valid"]])
        return (reward * (self.variance + _EPSILON).rsqrt()).clamp(-CLIP, CLIP).to(torch.float32)


def update_statistics(model: Any, batch: dict[str, Any]) -> None:
    """Show a model that normalises its observations those of a batch, columns (T, B, ...); others are left alone."""
    if hasattr(model, "observe"):
        model.observe(row(batch["obs"], slice(None, -1)), batch["valid"])
