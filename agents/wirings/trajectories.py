"""Trajectories: rollouts as they come, weights as they change; nobody waits for anybody.

    learner                                       actors
      set_weights(version, weights)  ───────────▶ all, before the next call that is made
      stream("rollout")              ◀─────────── rollouts, k calls in flight for each

Each actor has k calls waiting, those included whose rollouts were not taken, so that it is never idle and never runs
ahead: a rollout is at most k rollouts of its actor behind, and as many batches as are prefetched. For IMPALA, APPO.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from parl_lite.agents.collector import Columns
from parl_lite.agents.updates import Update, counted, update_of

from .actors import actor_pool
from .prefetch import Batch, Prefetch
from .wiring import Learner, Plan, Stopwatch, Wiring, lost_of


class Stream:
    """Batches of rollouts of a pool of actors, and the weights that these act with.

    Attributes:
        n_stale: rollouts that were dropped because they were too old.
    """

    def __init__(self, plan: Plan, learner: Learner) -> None:
        settings = plan.settings
        self.pool = actor_pool(plan)
        self.n_stale = 0
        self._prepare = learner.prepare
        self._n = settings.rollouts_per_batch or settings.n_actors
        self._max_lag = settings.max_lag
        self._version = -1
        self._stream: Any = None
        self._start_stream = partial(self.pool.stream, "rollout", in_flight=settings.calls_in_flight)

    def publish(self, version: int, weights: Any) -> None:
        """Send weights to all actors."""
        self._version = version
        self.pool.broadcast("set_weights", version, weights, version=version + 1)

    def take(self) -> Batch:
        """Return the next batch of rollouts that are not too old; waits for them."""
        self._stream = self._stream or self._start_stream()
        rollouts: list[Columns] = []
        for _, rollout in self._stream:
            if self._max_lag and self._version - int(rollout["version"]) > self._max_lag:
                self.n_stale += 1
                continue
            rollouts.append(rollout)
            if len(rollouts) == self._n:
                break
        prepared = self._prepare(rollouts)
        return Batch([counted(rollout) for rollout in rollouts], prepared, self.n_stale)

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""
        return lost_of(self.pool)

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        self.pool.close()


class Trajectories(Wiring):
    """Actors and learner by trajectories."""

    def __init__(self, plan: Plan, learner: Learner) -> None:
        super().__init__(plan, learner)
        make_stream = partial(Stream, plan, learner)
        self.stream: Stream | Prefetch = (
            Prefetch(make_stream, plan.settings.prefetch) if plan.settings.prefetch else make_stream()
        )
        self._publish()

    def update(self) -> Update:
        """Learn from the next rollouts of any actors."""
        with Stopwatch() as waited:
            rollouts, batch, n_stale = self.stream.take()
        metrics = {**self.learner.learn(batch), "stale_rollouts": n_stale}
        self.version += 1
        self._publish()
        return update_of(rollouts, self.version - 1, metrics, waited.seconds)

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""
        return self.stream.n_lost

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        self.stream.close()

    def _publish(self) -> None:
        self.stream.publish(self.version, self.learner.get_weights())
