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
from .models import Activation, NetworkSettings


@dataclass(frozen=True, kw_only=True)
class RunSettings(EnvSettings, NetworkSettings):
    """Run."""

    seed: CountOrZero = 1
    """Seed of the run; every actor and environment draws from a stream of its own, derived from it."""
    total_steps: Count = 500_000
    """Environment steps after which the run ends and the schedules reach their ends; --resume with more of them goes on."""
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
class LearnersSettings(RunSettings):
    """Learners."""

    n_learners: Count = 1
    """Processes that learn; each gets an equal share of the rollouts, and the gradients are averaged."""


@dataclass(frozen=True, kw_only=True)
class InStepSettings(LearnersSettings):
    """Actors and learner in step."""


@dataclass(frozen=True, kw_only=True)
class TrajectorySettings(LearnersSettings):
    """Actors and learner by trajectories."""

    rollouts_per_batch: CountOrZero = 0
    """Rollouts that one update learns from; 0: as many as there are actors, so that more actors add no policy lag."""
    calls_in_flight: Count = 2
    """Rollouts asked of an actor at a time: 2 keep it busy, 1 keeps its weights fresher."""
    prefetch: CountOrZero = 0
    """Batches made ready while the learner learns; each adds to the policy lag."""
    max_lag: CountOrZero = 0
    """Rollouts of a policy that is more updates old than this are dropped; 0: none are."""


@dataclass(frozen=True, kw_only=True)
class GradientSettings(RunSettings):
    """Gradients of the actors, applied as they come."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(RunSettings):
    """Replay."""

    n_actors: CountOrZero = 0
    """Actor processes; 0: the learner's process acts itself, in turn with learning, and a run can be repeated bit by bit."""
    envs_per_actor: Count = 1
    """Environments that an actor steps together."""
    unroll_length: Count = 4
    """Steps of each environment in one rollout."""
    activation: Activation = "relu"
    """Activation of an MLP: tanh, relu, elu or silu."""
    replay_capacity: Count = 100_000
    """Steps that are remembered, in all shards together."""
    n_shards: CountOrZero = 0
    """Processes that remember them; 0: the learner's."""
    learning_starts: Count = 1_000
    """Steps before the first update."""
    samples_per_insert: NotNegative = 8.0
    """How often a transition, or a sequence, is learned from on average; 0: as often as learner and actors are fast."""
    prefetch: CountOrZero = 2
    """Batches asked of the shards before they are needed."""
    publish_interval: Count = 20
    """Updates between two times that the actors get the weights."""
    actor_priorities: bool = False
    """Actors say how wrong the values of new steps are; without, these have the highest priority that there was."""
    save_replay: bool = False
    """Checkpoints hold what is remembered, too; without, a resumed run begins with nothing."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError that names the first field with an impossible value."""
        super().__post_init__()
        if not self.n_actors and (self.n_shards or not self.samples_per_insert):
            name = "n_shards" if self.n_shards else "samples_per_insert"
            raise ValueError(f"{name} is {getattr(self, name)}, and n_actors is 0: that needs actors")
        if self.learning_starts > self.replay_capacity:
            raise ValueError(f"learning_starts is {self.learning_starts}: at most replay_capacity, {self.replay_capacity}")
        if self.n_shards > max(1, self.n_actors):
            raise ValueError(f"n_shards is {self.n_shards}: at most one for each of {self.n_actors} actors")


@dataclass(frozen=True, kw_only=True)
class ContinuousReplaySettings(ReplaySettings):
    """Replay of continuous actions."""

    hidden_size: Count = 256
    """Width of hidden layers."""
    replay_capacity: Count = 1_000_000
    """Steps that are remembered, in all shards together."""
    learning_starts: Count = 10_000
    """Steps before the first update."""
    samples_per_insert: NotNegative = 256.0
    """How often a transition is learned from on average; 0: as often as learner and actors are fast."""


@dataclass(frozen=True, kw_only=True)
class DistributedReplaySettings(ReplaySettings):
    """Replay with many actors."""

    n_actors: CountOrZero = 2
    """Actor processes; 0: the learner's process acts itself, in turn with learning, and a run can be repeated bit by bit."""
    n_shards: CountOrZero = 1
    """Processes that remember them; 0: the learner's."""
    actor_priorities: bool = True
    """Actors say how wrong the values of new steps are; without, these have the highest priority that there was."""
    unroll_length: Count = 50
    """Steps of each environment in one rollout."""
    replay_capacity: Count = 1_000_000
    """Steps that are remembered, in all shards together."""
    samples_per_insert: NotNegative = 1.0
    """How often a transition, or a sequence, is learned from on average; 0: as often as learner and actors are fast."""


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
