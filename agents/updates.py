"""What came of one update of the learner, for the record of the run. Knows the columns of rollouts, and numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

TIMES = ("actor_waited", "actor_seconds")
"""What actors add to the columns of a rollout: seconds that they waited before it, and that passed since the one before."""


COUNTED = ("valid", "episode_return", "episode_length", "version", *TIMES)
"""Columns of a rollout that `update_of` looks at."""


class Update(NamedTuple):
    """What came of one update of the learner."""

    env_steps: int
    """Steps of environments it learned from; autoreset rows are none."""
    episode_returns: np.ndarray[Any, Any]
    """Raw returns (n,) of the training episodes that ended in these steps."""
    episode_lengths: np.ndarray[Any, Any]
    """Their lengths (n,) in steps."""
    lag: float
    """Updates between the policy that acted and the one that learned, on average."""
    metrics: dict[str, float]
    """What `learn` returned."""
    learner_waited: float = 0.0
    """Seconds in which the learner had nothing to learn from."""
    actor_waited: float = 0.0
    """Seconds in which the actors had nothing to do, of all of them together."""
    actor_seconds: float = 0.0
    """Seconds in which they worked or waited."""
    n_updates: int = 1
    """0 where the learner only took note of what actors did."""


def update_of(
    rollouts: Sequence[Mapping[str, Any]], version: int, metrics: Mapping[str, float], learner_waited: float = 0.0
) -> Update:
    """Return what came of an update from rollouts, made when `version` updates had been made before."""
    if not rollouts:
        return Update(0, np.zeros(0), np.zeros(0), 0.0, dict(metrics), learner_waited)
    ended = [~np.isnan(rollout["episode_return"]) for rollout in rollouts]
    return Update(
        env_steps=sum(int(rollout["valid"].sum()) for rollout in rollouts),
        episode_returns=np.concatenate([rollout["episode_return"][at] for rollout, at in zip(rollouts, ended, strict=True)]),
        episode_lengths=np.concatenate([rollout["episode_length"][at] for rollout, at in zip(rollouts, ended, strict=True)]),
        lag=float(np.mean([version - rollout["version"] for rollout in rollouts])),
        metrics=dict(metrics),
        learner_waited=learner_waited,
        actor_waited=sum(float(rollout.get("actor_waited", 0.0)) for rollout in rollouts),
        actor_seconds=sum(float(rollout.get("actor_seconds", 0.0)) for rollout in rollouts),
    )


def counted(rollout: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the columns that `update_of` looks at: the observations, far larger, need not be kept for it."""
    return {name: np.array(rollout[name]) for name in COUNTED if name in rollout}


def without_times(rollout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that are learned from."""
    return {name: column for name, column in rollout.items() if name not in TIMES}
