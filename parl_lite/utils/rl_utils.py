"""Returns and advantages of one uncut piece of one episode. Knows numpy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def calc_discount_sum_rewards(rewards: ArrayLike, gamma: float) -> NDArray[np.floating[Any]]:
    """Return the discounted sum of rewards from each step to the end, (T, ...) float64 for rewards (T, ...)."""
    result = np.array(rewards, dtype=np.float64)
    for t in range(len(result) - 2, -1, -1):
        result[t] += gamma * result[t + 1]
    return result


def calc_gae(rewards: ArrayLike, values: ArrayLike, next_value: ArrayLike, gamma: float, lam: float) -> NDArray[np.floating[Any]]:
    """Return generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438), (T,) float64.

    Args:
        rewards, values: of each step, (T,).
        next_value: value of the observation after the last step; 0 if the episode ended there in a terminal state.
    """
    values = np.asarray(values, dtype=np.float64)
    following = np.append(values[1:], next_value)
    return calc_discount_sum_rewards(np.asarray(rewards) + gamma * following - values, gamma * lam)
