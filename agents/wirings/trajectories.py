"""Trajectories: rollouts as they come, weights as they change; nobody waits for anybody.

    learner                                       actors
      set_weights(version, weights)  ───────────▶ all, before the next call that is made
      stream("rollout")              ◀─────────── rollouts, k calls in flight for each

Each actor has k calls waiting, those included whose rollouts were not taken, so that it is never idle and never runs
ahead: a rollout is at most k rollouts of its actor behind. For IMPALA, APPO.
"""

from __future__ import annotations

from parl_lite.agents.collector import Columns
from parl_lite.agents.updates import Update, update_of

from .actors import actor_pool
from .wiring import Learner, Plan, Stopwatch, Wiring


class Trajectories(Wiring):
    """Actors and learner by trajectories.

    Attributes:
        n_stale: rollouts that were dropped because they were too old.
    """

    def __init__(self, plan: Plan, learner: Learner) -> None:
        super().__init__(plan, learner)
        self.n_stale = 0
        self.pool = actor_pool(plan)
        self._publish()
        self._stream = self.pool.stream("rollout", in_flight=plan.settings.calls_in_flight)

    def update(self) -> Update:
        """Learn from the next rollouts of any actors."""
        with Stopwatch() as waited:
            rollouts = self._take(self.plan.settings.rollouts_per_batch or self.plan.settings.n_actors)
        metrics = self.learner.learn(rollouts)
        self.version += 1
        self._publish()
        return update_of(rollouts, self.version - 1, metrics, waited.seconds)

    def _take(self, n: int) -> list[Columns]:
        """Return the next n rollouts that are not too old."""
        rollouts: list[Columns] = []
        for _, rollout in self._stream:
            max_lag = self.plan.settings.max_lag
            if max_lag and self.version - int(rollout["version"]) > max_lag:
                self.n_stale += 1
                continue
            rollouts.append(rollout)
            if len(rollouts) == n:
                break
        return rollouts

    def _publish(self) -> None:
        self.pool.broadcast("set_weights", self.version, self.learner.get_weights(), version=self.version + 1)
