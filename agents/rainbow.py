"""Rainbow: C51 with every improvement of DQN at once. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from dataclasses import dataclass

from .acting import StepPolicy
from .bounds import Count, CountOrZero, NotNegative, Positive
from .c51 import C51, RANGES, C51Learning, make_model, network
from .registry import DISCRETE_ACTIONS, Entry
from .settings import ReplaySettings
from .tuned import DISCRETE, tuned
from .wirings.replay import Replay

__all__ = ["ENTRY", "Rainbow", "RainbowLearning", "RainbowSettings", "network"]


@dataclass(frozen=True, kw_only=True)
class RainbowLearning(C51Learning):
    """The paper's settings."""

    n_step: Count = 3
    """Steps whose rewards are summed before the target bootstraps."""
    learning_rate: Positive = 6.25e-5
    """Learning rate of Adam, for the mean loss."""
    adam_epsilon: Positive = 1.5e-4
    """Added to the root of Adam's second moment: large values damp small gradients."""
    target_period: Count = 2_000
    """Updates between two moves of the target network."""
    priority_exponent: NotNegative = 0.5
    """Transitions are drawn in proportion to the KL divergence to this power; 0: uniformly."""
    head_size: CountOrZero = 512
    """Width of the hidden layers of value and advantage; 0: none."""
    double: bool = True
    """The learning network chooses the action whose distribution is bootstrapped."""
    dueling: bool = True
    """Value and advantage in streams of their own."""
    noisy: bool = True
    """Noisy layers after the encoder explore, and epsilon-greedy does not."""


class Rainbow(C51):
    """Rainbow (Hessel et al. 2018, arXiv:1710.02298): double, dueling, noisy, prioritized, n-step C51.

    All of it is in C51 and its switches; the KL divergence is the priority.
    """


@dataclass(frozen=True, kw_only=True)
class RainbowSettings(RainbowLearning, ReplaySettings):
    """Rainbow."""


SMALL = {name: {"head_size": 128} for name in ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MinAtar/*")}

ENTRY = Entry(
    name="rainbow",
    settings=RainbowSettings,
    algorithm=Rainbow,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=tuned(DISCRETE, RANGES, SMALL),
)
