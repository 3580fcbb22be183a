"""Settings that all runs have, and those of each wiring of actors and learner. Knows no algorithm.

An algorithm's settings inherit from those of its wiring, and add what it learns with:

    @dataclass(frozen=True, kw_only=True)
    class PPOSettings(InStepSettings):
        \"\"\"PPO.\"\"\"

        clip: Positive = 0.2
        \"\"\"The line under a field is its help on the command line; the type says what values it may have.\"\"\"

        n_actors: Count = 4  # another default of a field that is there already
"""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import Count, CountOrZero, NotNegative, check
from .env_settings import EnvSettings
from .models import NetworkSettings


@dataclass(frozen=True, kw_only=True)
class RunSettings(EnvSettings, NetworkSettings):
    """Run."""

    seed: CountOrZero = 1
    """Seed of the run; every actor and environment draws from a stream of its own, derived from it."""
    total_steps: Count = 500_000
    """Environment steps after which the run ends and the schedules reach their ends."""
    n_actors: Count = 2
    """Actor processes."""
    unroll_length: Count = 32
    """Steps of each environment in one rollout."""
    n_threads: Count = 1
    """Threads of torch in each learner; more than one helps large networks only."""
    device: str = "cpu"
    """Where the learner computes: cpu, cuda, cuda:1, ..."""
    checkpoint_interval: NotNegative = 60.0
    """Seconds between two checkpoints; 0: only one, at the end."""
    eval_interval: CountOrZero = 0
    """Environment steps between two evaluations; 0: only one, at the end."""
    eval_episodes: CountOrZero = 10
    """Episodes of an evaluation, so many from each of its environments; 0: no evaluation."""
    eval_sampled: bool = False
    """Whether an evaluation draws its actions, as in training, in place of the likeliest."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError that names the first field with an impossible value."""
        check(self)


@dataclass(frozen=True, kw_only=True)
class InStepSettings(RunSettings):
    """Actors and learner in step."""

    n_learners: Count = 1
    """Processes that learn; each gets an equal share of the rollouts, and the gradients are averaged."""


@dataclass(frozen=True, kw_only=True)
class TrajectorySettings(RunSettings):
    """Actors and learner by trajectories."""

    rollouts_per_batch: CountOrZero = 0
    """Rollouts that one update learns from; 0: as many as there are actors, so that more actors add no policy lag."""
    calls_in_flight: Count = 2
    """Rollouts asked of an actor at a time: 2 keep it busy, 1 keeps its weights fresher."""
    prefetch: CountOrZero = 0
    """Batches made ready while the learner learns; each adds to the policy lag."""
    max_lag: CountOrZero = 0
    """Rollouts of a policy that is more updates old than this are dropped; 0: none are."""
    n_learners: Count = 1
    """Processes that learn; each gets an equal share of the rollouts, and the gradients are averaged."""


@dataclass(frozen=True, kw_only=True)
class GradientSettings(RunSettings):
    """Gradients of the actors, applied as they come."""


@dataclass(frozen=True, kw_only=True)
class CentralSettings(RunSettings):
    """Central inference."""

    rollouts_per_batch: CountOrZero = 0
    """Rollouts that one update learns from; 0: as many as there are actors."""
    calls_in_flight: Count = 2
    """Rollouts asked of an actor at a time."""
    n_policies: Count = 1
    """Processes that choose the actions for all actors."""
    inference_batch: Count = 64
    """Calls for actions that are answered together, at most."""
    inference_wait: NotNegative = 0.002
    """Seconds that a call for actions waits for others at most."""
