"""Gradients: actors compute them on their own rollouts, the learner applies them as they come.

    learner                                             actors
      gradients(version, weights, env_steps)  ───────▶  play one rollout with these weights, compute gradients
      apply_gradients, version + 1            ◀───────  gradients, and which episodes ended
      the same actor gets the new weights at once; the others work with what they have

The lag is what others have applied meanwhile: as a rule, one less than there are actors. Besides `learn`, the algorithm has

    compute_gradients(batch) -> (gradients, metrics)    tensors in a list or dict, and what is worth logging
    apply_gradients(gradients) -> metrics               one step of the optimiser

and where it has an attribute `env_steps`, actors find there the steps of the whole run. For A3C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import parl_lite
from parl_lite.agent import to_numpy, to_tensors
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.updates import Update, counted, update_of
from parl_lite.errors import ActorLostError
from parl_lite.futures import FIRST_COMPLETED, Future
from parl_lite.pool_members import loss_of

from .actors import WorkClock, actor_pool
from .wiring import LocalLearner, Plan, Stopwatch, Wiring, scalars


@parl_lite.remote_class
class GradientActor(RolloutWorker):
    """An actor with an algorithm, whose model it also acts with."""

    def __init__(self, make_envs: Any, make_model: Any, make_algorithm: Callable[[Any], Any], **kwargs: Any) -> None:
        super().__init__(make_envs, make_model, **kwargs)
        self.algorithm = make_algorithm(self.model)
        self.clock = WorkClock()

    def ready(self, _: None) -> None:
        """Answer."""

    def gradients(self, version: int, weights: Mapping[str, Any], env_steps: int) -> dict[str, Any]:
        """Play one rollout with these weights; return `gradients`, `metrics`, and the columns that are counted."""
        self.clock.start()
        self.set_weights(version, weights)
        if hasattr(self.algorithm, "env_steps"):
            self.algorithm.env_steps = env_steps
        columns = self.sample()
        gradients, metrics = self.algorithm.compute_gradients(to_tensors(columns))
        return {"gradients": to_numpy(gradients), "metrics": scalars(metrics), **counted(columns), **self.clock.stop()}


class Gradients(Wiring):
    """Gradients of actors, applied as they come."""

    learner: LocalLearner

    def __init__(self, plan: Plan, learner: LocalLearner) -> None:
        super().__init__(plan, learner)
        self.env_steps = getattr(learner.agent.alg, "env_steps", 0)
        self.pool = actor_pool(plan, GradientActor, plan.make_algorithm)
        self.pool.broadcast("set_weights", self.version - 1, learner.get_weights())  # so that the pool hears of each actor
        self._under_way: dict[Future, Any] = {}

    def update(self) -> Update:
        """Apply the next gradients of any actor, and send it the new weights."""
        with Stopwatch() as waited:
            actor, found = self._next()
        metrics = self.learner.apply_gradients(found["gradients"])
        self.version += 1
        update = update_of([found], self.version - 1, {**found["metrics"], **metrics}, waited.seconds)
        self.env_steps += update.env_steps
        self._ask(actor)
        return update

    def _next(self) -> tuple[Any, dict[str, Any]]:
        """Return the actor whose gradients come next, and these; waits for an actor where there is none."""
        while True:
            self._ask_idle_actors()
            if not self._under_way:
                self.pool.map("ready", [None])
                continue
            done, _ = parl_lite.wait(self._under_way, return_when=FIRST_COMPLETED)
            future = next(future for future in self._under_way if future in done)
            actor = self._under_way.pop(future)
            if loss_of(future) is None:
                return actor, future.result()

    def _ask_idle_actors(self) -> None:
        """Keep every actor at work, new ones too."""
        busy = {id(actor) for actor in self._under_way.values()}
        for actor in self.pool.actors:
            if id(actor) not in busy:
                self._ask(actor)

    def _ask(self, actor: Any) -> None:
        try:
            future = actor.futures.gradients(self.version, self.learner.get_weights(), self.env_steps)
        except ActorLostError:
            return  # the pool will notice
        self._under_way[future] = actor
