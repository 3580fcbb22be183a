"""In step: all actors play one rollout with the same weights, then the learner learns from all of them, and again.

    learner                                   actors
      set_weights(version, weights)  ──────▶  all
      map("rollout", one each)       ◀──────  n rollouts of the same policy
      learn(n rollouts)                       wait

The policy that learns is the one that acted, so the lag is zero; the price is that one side always waits for the other.
A lost actor's rollout is played by another. For A2C, PPO, VPG, TRPO.
"""

from __future__ import annotations

from parl_lite.agents.updates import Update, counted, update_of

from .actors import actor_pool
from .wiring import Learner, Plan, Stopwatch, Wiring


class InStep(Wiring):
    """Actors and learner in step."""

    def __init__(self, plan: Plan, learner: Learner) -> None:
        super().__init__(plan, learner)
        self.pool = actor_pool(plan)

    def update(self) -> Update:
        """Let all actors play one rollout and learn from them."""
        with Stopwatch() as waited:
            self.pool.broadcast("set_weights", self.version, self.learner.get_weights(), version=self.version + 1)
            rollouts = self.pool.map("rollout", range(self.plan.settings.n_actors))
        batch = self.learner.prepare(rollouts)
        rollouts = [counted(rollout) for rollout in rollouts]
        metrics = self.learner.learn(batch)
        self.version += 1
        return update_of(rollouts, self.version - 1, metrics, waited.seconds)
