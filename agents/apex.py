"""Ape-X DQN: double, dueling, prioritized DQN with three steps, for many actors.

Knows nothing of buffers, environments, clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .dqn import DQN, DQNLearning, network
from .value_learner import EpsilonLadder

__all__ = ["ApexDQN", "ApexLearning", "network"]


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
