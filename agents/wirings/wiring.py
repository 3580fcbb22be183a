"""What all wirings have in common: the plan they are made from, and whom they make learn. Knows no way of wiring."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from parl_lite.agent import Agent, to_numpy, to_tensors
from parl_lite.agents.collector import Columns, concatenate
from parl_lite.agents.spaces import Spaces
from parl_lite.agents.updates import Update, without_times
from parl_lite.algorithm import Algorithm
from parl_lite.model import Model
from parl_lite.pool import ActorPool


@dataclass(frozen=True)
class Plan:
    """What a run is made from. It travels to actors, so its functions must be picklable."""

    settings: Any
    """A dataclass derived from one in settings.py."""
    make_envs: Callable[[], Any]
    """Makes the environments of one actor."""
    make_model: Callable[[Spaces], Model]
    make_algorithm: Callable[[Model], Algorithm]
    spaces: Spaces
    actor_seed: int
    """Seed of the actors; a run that was resumed has another, or its actors would play the same games again."""
    first_version: int = 0
    """Updates that were made before."""
    make_policy: Callable[..., Any] | None = None
    """`Entry.make_policy`."""
    first_env_steps: int = 0
    """Steps that were made before."""
    folder: str = ""
    """Where the wiring may keep what `save` writes besides what it returns."""
    resumed: Mapping[str, Any] = field(default_factory=dict)
    """What `save` returned, of a run that is resumed."""


class Learner(Protocol):
    """What wirings ask of whoever learns: one process or several."""

    def prepare(self, rollouts: Sequence[Columns]) -> Any:
        """Return a batch of rollouts as `learn` wants it; may run in another thread, while the learner learns."""

    def learn(self, batch: Any) -> dict[str, float]:
        """Make one update from a batch and return what `Algorithm.learn` does."""

    def get_weights(self) -> dict[str, Any]:
        """Return the weights that actors act with."""

    def synchronize(self) -> None:
        """Bring the agent of this process up to date, for a checkpoint or an evaluation."""

    @property
    def n_lost(self) -> int:
        """Learners that were lost."""

    def close(self) -> None:
        """End what learns elsewhere."""


class LocalLearner:
    """Learns in this process."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def prepare(self, rollouts: Sequence[Columns]) -> Columns:
        """Return rollouts side by side."""
        return concatenate([without_times(rollout) for rollout in rollouts])

    def learn(self, batch: Columns) -> dict[str, float]:
        """Make one update from a batch."""
        return scalars(self.agent.learn(batch))

    def apply_gradients(self, gradients: Any) -> dict[str, float]:
        """Make one update from gradients that were computed elsewhere."""
        device = next(self.agent.alg.model.parameters()).device
        return scalars(to_numpy(self.agent.alg.apply_gradients(to_tensors(gradients, device))))

    def get_weights(self) -> dict[str, Any]:
        """Return copies of the weights."""
        return self.agent.get_weights()

    def synchronize(self) -> None:
        """Bring the agent of this process up to date: it is, always."""

    @property
    def n_lost(self) -> int:
        """Learners that were lost: this process goes on for ever, or ends."""
        return 0

    def close(self) -> None:
        """Do nothing."""


class Wiring:
    """Actors and a learner at work; a context manager that ends the actors.

    Attributes:
        version: updates that the learner has made, in all parts of the run.
        pool: the actors.
    """

    pool: ActorPool

    def __init__(self, plan: Plan, learner: Learner) -> None:
        self.plan = plan
        self.learner = learner
        self.version = plan.first_version

    @staticmethod
    def n_slots(settings: Any) -> int:
        """Return how many processes it needs besides the learners."""
        return int(settings.n_actors)

    def update(self) -> Update:
        """Wait for data, make one update of the learner, see to it that the actors get the weights."""
        raise NotImplementedError

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""
        return lost_of(self.pool)

    def save(self) -> dict[str, Any]:
        """Return what is needed to go on besides the algorithm, for `Plan.resumed`."""
        return {}

    def figures(self) -> dict[str, Any]:
        """Return what else the summary of a run should say."""
        return {}

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        self.pool.close()

    def __enter__(self) -> Wiring:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def lost_of(pool: ActorPool) -> int:
    """Return how many actors of a pool were lost."""
    return sum(figures["restarts"] + (not figures["alive"]) for figures in pool.figures())


class Stopwatch:
    """Adds up the seconds between `with` and its end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._start = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._clock() - self._start


def scalars(metrics: Any) -> dict[str, float]:
    """Return what a `learn` returned without what is no single number, such as priorities."""
    return {name: float(value) for name, value in (metrics or {}).items() if np.ndim(value) == 0}
