"""How actors of value algorithms explore: epsilon-greedy and its ladder over actors, noise. Knows tensors only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def epsilon_ladder(index: np.ndarray | int, n: int, base: float = 0.4, exponent: float = 7.0) -> np.ndarray:
    """Return epsilon_i = base^(1 + exponent i / (n - 1)), float64 in the shape of `index` (Ape-X; Horgan et al. 2018).

    Args:
        index: i, counted over *all* environments of all machines: one that counts anew in each process would have no small ones.
        n: how many there are in all; with one it gets the base.
    """
    return base ** (1 + exponent * np.asarray(index, dtype=np.float64) / max(1, n - 1))


def epsilon_greedy(q: Tensor, epsilon: float | Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return the best actions (...) int64 of values (..., A), and with probability `epsilon` any action.

    Args:
        epsilon: a number, or a tensor (...) for rows that explore differently.
        generator: where chance comes from; torch's own stream without.
    """
    best = q.argmax(dim=-1)
    draw = torch.rand(best.shape, generator=generator, device=q.device)
    other = torch.randint(q.shape[-1], best.shape, generator=generator, device=q.device)
    return torch.where(draw < epsilon, other, best)


def greedy_probability(q: Tensor, action: Tensor, epsilon: float | Tensor) -> Tensor:
    """Return the probability (...) with which `epsilon_greedy` would have chosen `action` (...) int64."""
    by_chance = epsilon / q.shape[-1]
    return torch.where(action == q.argmax(dim=-1), 1 - epsilon + by_chance, by_chance)


def add_noise(action: Tensor, scale: float | Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return actions in [-1, 1] with normal noise of standard deviation `scale`, clipped."""
    noise = torch.empty_like(action).normal_(generator=generator)
    return (action + scale * noise).clamp(-1, 1)


class OrnsteinUhlenbeck:
    """Noise that remembers its direction, as DDPG had it: x += theta (0 - x) + sigma N(0, 1).

    Args:
        shape: of the actions of all environments, (B, D).
        theta: how fast it forgets.
        sigma: how fast it spreads.
    """

    def __init__(self, shape: tuple[int, ...], theta: float = 0.15, sigma: float = 0.2) -> None:
        self.theta = theta
        self.sigma = sigma
        self.position = torch.zeros(shape)

    def step(self, first: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Return the next noise (B, D); rows where `first` (B,) bool begin an episode start at zero."""
        if first is not None:
            self.position[first] = 0.0
        self.position = (1 - self.theta) * self.position + self.sigma * torch.empty_like(self.position).normal_(
            generator=generator
        )
        return self.position
