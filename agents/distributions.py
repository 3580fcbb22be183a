"""Distributions over actions, as thin as the inner loop needs them. Knows tensors only.

Each is made from parameters (..., P), as a network gives them, and acts on actions as they stand in a rollout:

    Categorical         logits (..., A)                                      (...) integers
    MultiCategorical    logits of all choices one after the other            (..., n) integers
    Bernoulli           logits (..., n)                                      (..., n) zeros and ones
    DiagonalGaussian    means and log standard deviations (..., 2 n)         (..., n)
    TanhGaussian        the same                                             (..., n) before tanh

`sample(generator)` of the Gaussians carries gradients to the parameters. All log probabilities, entropies and
divergences are sums over n, of shape (...), in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .spaces import ActionKind, BinaryActions, BoxActions, MultiDiscreteActions


class Distribution(Protocol):
    """What algorithms ask of a distribution."""

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return drawn actions."""

    def mode(self) -> Tensor:
        """Return the likeliest actions."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log probabilities, or log densities, (...) of actions."""

    def entropy(self) -> Tensor:
        """Return entropies (...)."""

    def kl(self, other: Any) -> Tensor:
        """Return KL(self || other) (...) of distributions of the same class."""


DistributionMaker = Callable[[Tensor], Distribution]
"""Makes a distribution of parameters (..., P); `model.distribution` is one."""


class Categorical:
    """A choice among A actions by unnormalised log probabilities `logits` (..., A)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @cached_property
    def log_probs(self) -> Tensor:
        """Normalised log probabilities (..., A)."""
        return torch.log_softmax(self.logits, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return actions (...) int64 drawn by the exponential race: argmax of p / noise, noise ~ Exp(1)."""
        noise = torch.empty_like(self.logits).exponential_(generator=generator)
        return (self.logits - noise.log()).argmax(dim=-1)

    def mode(self) -> Tensor:
        """Return the likeliest actions (...) int64."""
        return self.logits.argmax(dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log probabilities (...) of `action` (...) int64."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return entropies (...) in nats; an action of probability zero adds nothing."""
        return -(self.log_probs.exp() * _finite(self.log_probs)).sum(dim=-1)

    def kl(self, other: Categorical) -> Tensor:
        """Return KL(self || other) (...) in nats."""
        return (self.log_probs.exp() * (_finite(self.log_probs) - _finite(other.log_probs))).sum(dim=-1)


class MultiCategorical:
    """Independent choices, the i-th among `sizes[i]`; `logits` (..., sum of sizes)."""

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        self.parts = [Categorical(part) for part in logits.split(list(sizes), dim=-1)]

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return actions (..., n) int64."""
        return torch.stack([part.sample(generator) for part in self.parts], dim=-1)

    def mode(self) -> Tensor:
        """Return the likeliest actions (..., n) int64."""
        return torch.stack([part.mode() for part in self.parts], dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log probabilities (...) of `action` (..., n) int64."""
        return _total([part.log_prob(one) for part, one in zip(self.parts, action.unbind(-1), strict=True)])

    def entropy(self) -> Tensor:
        """Return entropies (...)."""
        return _total([part.entropy() for part in self.parts])

    def kl(self, other: MultiCategorical) -> Tensor:
        """Return KL(self || other) (...)."""
        return _total([ours.kl(theirs) for ours, theirs in zip(self.parts, other.parts, strict=True)])


class Bernoulli:
    """Independent switches that are on with probability sigmoid(`logits`) (..., n)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return actions (..., n) int8."""
        noise = torch.rand(self.logits.shape, generator=generator, device=self.logits.device)
        return (noise < self.logits.sigmoid()).to(torch.int8)

    def mode(self) -> Tensor:
        """Return the likeliest actions (..., n) int8."""
        return (self.logits > 0).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log probabilities (...) of `action` (..., n) of zeros and ones."""
        return torch.where(action.bool(), F.logsigmoid(self.logits), F.logsigmoid(-self.logits)).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Return entropies (...): softplus(l) - l sigmoid(l), which stays exact where a switch is all but certain."""
        return (F.softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(dim=-1)

    def kl(self, other: Bernoulli) -> Tensor:
        """Return KL(self || other) (...)."""
        on, off = F.logsigmoid(self.logits), F.logsigmoid(-self.logits)
        other_on, other_off = F.logsigmoid(other.logits), F.logsigmoid(-other.logits)
        return (on.exp() * (on - other_on) + off.exp() * (off - other_off)).sum(dim=-1)


class DiagonalGaussian:
    """Independent normal numbers; `params` (..., 2 n) are the means and the logs of the standard deviations."""

    def __init__(self, params: Tensor) -> None:
        self.mean, self.log_std = params.chunk(2, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return actions (..., n)."""
        noise = torch.randn(self.mean.shape, generator=generator, device=self.mean.device, dtype=self.mean.dtype)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        """Return the means (..., n)."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log densities (...) of `action` (..., n)."""
        z = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Return entropies (...)."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """Return KL(self || other) (...)."""
        log_ratio = self.log_std - other.log_std
        distance = ((self.mean - other.mean) * (-other.log_std).exp()).square()
        return (0.5 * ((2 * log_ratio).exp() + distance - 1) - log_ratio).sum(dim=-1)


class TanhGaussian(DiagonalGaussian):
    """The density of a = tanh(u) between -1 and 1 for normal u. Actions go in and come out as u, so that none is lost.

    Attributes:
        squashes: tells collectors to take actions through tanh on their way into an environment.
    """

    squashes = True

    @staticmethod
    def squash(action: Tensor) -> Tensor:
        """Return tanh(u)."""
        return action.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log densities (...) of tanh(u) for `action` u (..., n)."""
        return super().log_prob(action) - _log_slope(action).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Return entropies (...): that of u plus the mean of log(1 - tanh(u)^2), by quadrature."""
        nodes, weights = (torch.as_tensor(array).to(self.mean) for array in _QUADRATURE)
        points = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes  # (..., n, nodes)
        return super().entropy() + (_log_slope(points) * weights).sum(dim=(-1, -2))


def distribution_for(kind: ActionKind, *, squash: bool = False) -> DistributionMaker:
    """Return what makes distributions over a kind of actions; `squash` bounds numbers by tanh instead of clipping."""
    if isinstance(kind, MultiDiscreteActions):
        return partial(MultiCategorical, sizes=kind.sizes)
    if isinstance(kind, BinaryActions):
        return Bernoulli
    if isinstance(kind, BoxActions):
        return TanhGaussian if squash else DiagonalGaussian
    return Categorical


def distribution_of(model: Any) -> DistributionMaker:
    """Return `model.distribution`, or Categorical for models that do not say."""
    maker: DistributionMaker = getattr(model, "distribution", Categorical)
    return maker


def _log_slope(u: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2), without forming tanh(u), which is 1 in float32 from u = 9 on."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


def _finite(log_probs: Tensor) -> Tensor:
    """Return log probabilities without -inf, which masked actions have: 0 * -inf is NaN."""
    return log_probs.clamp(min=torch.finfo(log_probs.dtype).min)


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(dim=0)


def _gauss_hermite(n_nodes: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return nodes and weights whose weighted sum is the mean over a standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


_QUADRATURE = _gauss_hermite(32)
