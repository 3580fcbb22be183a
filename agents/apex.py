"""Ape-X DQN: double, dueling, prioritized DQN with three steps, for many actors.

Knows nothing of buffers, environments, clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

from .acting import StepPolicy
from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .dqn import DQN, DQNLearning, make_model, network
from .registry import DISCRETE_ACTIONS, Entry
from .settings import DistributedReplaySettings
from .tuned import DISCRETE, SQUARED, tuned
from .value_learner import EpsilonLadder
from .wirings.replay import Replay

__all__ = ["ENTRY", "ApexDQN", "ApexLearning", "ApexSettings", "network"]


@dataclass(frozen=True, kw_only=True)
class ApexLearning(DQNLearning, EpsilonLadder):
    """The paper's settings, with Adam."""

    n_step: Count = 3
    """Steps whose rewards are summed before the target bootstraps."""
    learning_rate: Positive = 6.25e-5
    """Learning rate of Adam, for the mean loss."""
    adam_epsilon: Positive = 1.5e-4
    """Added to the root of Adam's second moment: large values damp small gradients."""
    max_grad_norm: NotNegative = 40.0
    """The gradient is scaled down to this norm, if longer; 0: never."""
    batch_size: Count = 512
    """Transitions in one update."""
    priority_exponent: NotNegative = 0.6
    """Transitions are drawn in proportion to |TD error| to this power; 0: uniformly."""
    importance_exponent: Fraction = 0.4
    """How far importance weights undo that at first; the exponent rises to 1 over the run."""
    head_size: CountOrZero = 512
    """Width of the hidden layers of value and advantage; 0: none."""
    double: bool = True
    """The learning network chooses the action whose value is bootstrapped, the target network says the value."""
    dueling: bool = True
    """Value and advantage in streams of their own."""


class ApexDQN(DQN):
    """Distributed prioritized experience replay (Horgan et al. 2018, arXiv:1803.00933).

    The update is DQN's; what is new is around it: many actors, each with its place on `exploration.epsilon_ladder`, who
    send the priorities of their transitions along (`priority`).
    """


@dataclass(frozen=True, kw_only=True)
class ApexSettings(ApexLearning, DistributedReplaySettings):
    """Ape-X DQN."""

    learning_starts: Count = 50_000
    """Steps before the first update."""


SMALL = {
    "batch_size": 128,
    "unroll_length": 20,
    "head_size": 128,
    "learning_starts": 2_000,
    "adam_epsilon": 1e-8,
    "epsilon_base": 0.2,
}

ENTRY = Entry(
    name="apex",
    settings=ApexSettings,
    algorithm=ApexDQN,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=tuned(DISCRETE, SQUARED, dict.fromkeys(("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MinAtar/*"), SMALL)),
)
