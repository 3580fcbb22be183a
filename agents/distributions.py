"""Distributions over actions, as thin as the inner loop needs them. Knows tensors only."""

from __future__ import annotations

import torch
from torch import Tensor


class Categorical:
    """A choice among A actions by unnormalised log probabilities `logits` (..., A)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.log_probs = torch.log_softmax(logits, dim=-1)  # (..., A)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return actions (...) int64 drawn by the exponential race: argmax of p / noise, noise ~ Exp(1)."""
        return sample_categorical(self.logits, generator)

    def mode(self) -> Tensor:
        """Return the likeliest actions (...) int64."""
        return self.logits.argmax(dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return log probabilities (...) of `action` (...) int64."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return entropies (...) in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(dim=-1)

    def kl(self, other: Categorical) -> Tensor:
        """Return KL(self || other) (...) in nats."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(dim=-1)


def sample_categorical(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return actions (...) int64 drawn from logits (..., A), which need not be normalised."""
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - noise.log()).argmax(dim=-1)
