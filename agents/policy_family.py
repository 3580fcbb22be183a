"""A family of policies, from exploitation to exploration, and the bandit that chooses among them. Knows numpy and snapshots.

Policy j follows Q = Q_extrinsic + beta_j Q_intrinsic, whose rewards it discounts by gamma_j. Policy 0 has beta 0.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from parl_lite import snapshot

Array = np.ndarray[Any, Any]


def intrinsic_weights(n: int, largest: float = 0.3) -> Array:
    """Return beta_j (n,) float64: 0, then a sigmoid, then `largest` (Badia et al. 2020, arXiv:2002.06038, appendix A)."""
    if n == 1:
        return np.zeros(1)
    index = np.arange(n)
    beta = largest * _sigmoid(10 * (2 * index - (n - 2)) / max(1, n - 2))
    beta[0], beta[-1] = 0.0, largest
    return np.asarray(beta)


def discounts(n: int, highest: float = 0.997, lowest: float = 0.99) -> Array:
    """Return gamma_j (n,) float64: from `highest` for policy 0 to `lowest`, evenly in log(1 - gamma) (arXiv:2002.06038)."""
    share = np.arange(n) / max(1, n - 1)
    return np.asarray(1 - np.exp((1 - share) * np.log(1 - highest) + share * np.log(1 - lowest)))


def agent57_discounts(n: int, highest: float = 0.9999, middle: float = 0.997, lowest: float = 0.99) -> Array:
    """Return gamma_j (n,) float64 of Agent57 (arXiv:2003.13350, appendix), for families of 10 and more.

    The first eight fall from `highest` to `middle`, the others from there to `lowest`.
    """
    head = middle + (highest - middle) * _sigmoid(10 * (6 - 2 * np.arange(1, 7)) / 6)
    return np.concatenate([[highest], head, discounts(n - 7, middle, lowest)])


class SlidingWindowUCB:
    """A bandit that forgets: mean return of each arm over the last `window` episodes, plus a bonus for arms seldom pulled.

        argmax_j  mean_j + bonus sqrt(1 / n_j)     or with probability epsilon any arm; every arm once at first

    (Garivier & Moulines 2008; as in Agent57, arXiv:2003.13350, appendix D.)

    Args:
        n_arms: policies to choose among.
        window: episodes that are remembered.
        bonus: weight of the second term, in units of returns.
        epsilon: chance of an arm drawn uniformly.
        seed: of the draws.
    """

    def __init__(
        self, n_arms: int, *, window: int = 160, bonus: float = 1.0, epsilon: float = 0.5, seed: int | np.random.SeedSequence = 0
    ) -> None:
        self.n_arms = n_arms
        self.bonus = bonus
        self.epsilon = epsilon
        self.episodes: deque[tuple[int, float]] = deque(maxlen=window)
        self._n_updates = 0
        self._random = np.random.default_rng(seed)

    def choose(self) -> int:
        """Return the arm of the next episode."""
        if self._n_updates < self.n_arms:
            return self._n_updates
        if self._random.random() < self.epsilon:
            return int(self._random.integers(self.n_arms))
        return self.best(self.bonus)

    def update(self, arm: int, episode_return: float) -> None:
        """Remember the undiscounted extrinsic return of an episode."""
        self.episodes.append((int(arm), float(episode_return)))
        self._n_updates += 1

    def best(self, bonus: float = 0.0) -> int:
        """Return the arm with the largest mean, and bonus if given; arms without an episode in the window come first."""
        count, total = np.zeros(self.n_arms), np.zeros(self.n_arms)
        for arm, episode_return in self.episodes:
            count[arm] += 1
            total[arm] += episode_return
        if bonus and (count == 0).any():
            return int(np.argmin(count))
        score = np.where(count > 0, total / np.maximum(count, 1), -np.inf) + bonus / np.sqrt(np.maximum(count, 1))
        return int(np.argmax(score))

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to go on from."""
        return snapshot.capture(vars(self))[0]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        snapshot.restore(vars(self), state)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))
