"""Sums of rewards over n steps, for whole rollouts at once. Knows numpy only; nothing of buffers.

The window of step t has the steps t .. t + k - 1 with k <= n. It ends after n steps, after the step that ends the
episode, and where the rollout ends (the write head): then it is shorter, and exact for the k steps it has:

    reward[t]    sum of gamma^j reward[t + j] for j < k
    discount[t]  gamma^k, or 0 if step t + k - 1 terminated; a truncation bootstraps
    last[t]      t + k - 1: what follows that step is the state to bootstrap from
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Windows(NamedTuple):
    """What `n_step_windows` returns, each (T, B); rows that are no step have reward 0, discount 0 and themselves as last."""

    reward: Array
    """float32"""
    discount: Array
    """float32"""
    last: Array
    """int64"""


def n_step_windows(reward: Array, terminated: Array, truncated: Array, valid: Array, gamma: float, n: int) -> Windows:
    """Return the windows of all steps.

    Args:
        reward: (T, B).
        terminated: (T, B) bool, the step ended the episode in a state of value zero.
        truncated: (T, B) bool, the step was the last for another reason.
        valid: (T, B) bool, whether the row is a step at all; no window reaches over one that is not.
        gamma: discount of one step.
        n: steps of a full window, at least 1.
    """
    length, n_envs = reward.shape
    powers = gamma ** np.arange(n + 1, dtype=np.float64)
    goes_on = valid & ~(terminated | truncated)  # whether row t + 1 is the next step of the same episode
    goes_on[:-1] &= valid[1:]
    goes_on[-1] = False
    total = np.where(valid, reward, 0.0).astype(np.float64)
    steps = valid.astype(np.int64)
    going = goes_on
    for k in range(1, min(n, length)):
        going = going[:-1]  # whether row t + k belongs to the window of row t, for t < length - k
        total[:-k] += powers[k] * (going * reward[k:])
        steps[:-k] += going
        going = going & goes_on[k:]
    last = np.arange(length)[:, None] + np.maximum(steps, 1) - 1
    dead = terminated[last, np.arange(n_envs)] | ~valid
    discount = np.where(dead, 0.0, powers[steps])
    return Windows(total.astype(np.float32), discount.astype(np.float32), last)
