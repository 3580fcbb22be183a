"""Actors that collect rollouts: how a pool of them is made, and how they note what they waited. Knows RolloutWorker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import parl_lite
from parl_lite.agents.collector import Columns
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.pool import RANK, ActorPool

from .wiring import Plan


class WorkClock:
    """Tells the seconds of work from those of waiting between."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = self._ended = clock()

    def start(self) -> None:
        """Begin to work."""
        self._started = self._clock()

    def stop(self) -> dict[str, float]:
        """End it; return `actor_waited` and `actor_seconds`, both since the last time."""
        before, self._ended = self._ended, self._clock()
        return {"actor_waited": self._started - before, "actor_seconds": self._ended - before}


@parl_lite.remote_class
class Actor(RolloutWorker):
    """A rollout worker whose rollouts say how long it worked and waited."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock = WorkClock()

    def rollout(self, number: int = 0) -> Columns:
        """Return the next rollout, with `actor_waited` and `actor_seconds`; the number is for `ActorPool.map`."""
        self.clock.start()
        columns = self.sample()
        return {**columns, **self.clock.stop()}


def actor_pool(plan: Plan, cls: Any = Actor, *args: Any) -> ActorPool:
    """Return the actors of a plan, each with random streams of its own."""
    settings = plan.settings
    return ActorPool(
        cls,
        settings.n_actors,
        plan.make_envs,
        plan.make_model,
        *args,
        unroll_length=settings.unroll_length,
        seed=plan.actor_seed,
        rank=RANK,
    )
