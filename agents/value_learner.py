"""What DQN and its descendants share: epsilon-greedy acting, one step of Adam, a target network. Knows Algorithm and torch.

A batch is a dict of columns (N, ...): obs, action int64, reward (the discounted sum of n steps) float32, next_obs (n steps
later), discount float32 (gamma^k over k <= n steps; 0 where the episode terminated within them, not where it was truncated),
and from a prioritized buffer weight float32, by which each loss is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parl_lite.algorithm import Algorithm

from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .exploration import epsilon_greedy
from .targets import adam, descend, evaluating, follow, target_of
from .value_math import weighted_mean

Batch = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ValueLearning:
    """What every algorithm of action values can be told about learning."""

    gamma: Fraction = 0.99
    """Discount of a reward one step later."""
    n_step: Count = 1
    """Steps whose rewards are summed before the target bootstraps."""
    learning_rate: Positive = 2.5e-4
    """Learning rate of Adam, for the mean loss."""
    adam_epsilon: Positive = 1e-8
    """Added to the root of Adam's second moment: large values damp small gradients."""
    max_grad_norm: NotNegative = 10.0
    """The gradient is scaled down to this norm, if longer; 0: never."""
    target_period: Count = 2_500
    """Updates between two moves of the target network."""
    target_rate: Fraction = 1.0
    """How far the target network then moves towards the learning one; 1: all the way."""
    batch_size: Count = 32
    """Transitions in one update."""
    epsilon_start: Fraction = 1.0
    """Probability of a random action at first."""
    epsilon_end: Fraction = 0.05
    """Probability of a random action after exploration_fraction of the run."""
    exploration_fraction: Fraction = 0.1
    """Part of the run over which epsilon falls in a line."""
    priority_exponent: NotNegative = 0.0
    """Transitions are drawn in proportion to |TD error| to this power; 0: uniformly."""
    importance_exponent: Fraction = 0.4
    """How far importance weights undo that at first; the exponent rises to 1 over the run."""
    head_size: CountOrZero = 0
    """Width of a hidden layer between encoder and values; 0: none, for encoders that end in one."""
    dueling: bool = False
    """Value and advantage in streams of their own."""
    noisy: bool = False
    """Noisy layers after the encoder explore, and epsilon-greedy does not."""

    def head(self) -> dict[str, Any]:
        """Return the keywords of a network's head."""
        return {"hidden_size": self.head_size, "dueling": self.dueling, "noisy": self.noisy}


@dataclass(frozen=True, kw_only=True)
class EpsilonLadder:
    """Exploration that each actor keeps for the whole run."""

    epsilon_base: Fraction = 0.4
    """Environment i of all N, on all machines, acts at random with probability base^(1 + exponent i / (N - 1)), always."""
    epsilon_exponent: NotNegative = 7.0
    """The exponent of that ladder."""


class ValueLearner(Algorithm):
    """Base of the algorithms of action values; they say what the loss of each transition or sequence is, in `_losses`.

    Attributes:
        epsilon: probability of a random action in `sample`; set it as a schedule or a ladder wants, also to a tensor (B,).
        target: the network that is bootstrapped from.
    """

    def __init__(self, model: Any, settings: ValueLearning) -> None:
        super().__init__(model)
        self.settings = settings
        self.target = target_of(model)
        self.optimizer = adam(model.parameters(), settings.learning_rate, settings.adam_epsilon)
        self.epsilon: float | Tensor = 0.0 if settings.noisy else settings.epsilon_start
        self.n_updates = 0

    def learn(self, batch: Batch) -> dict[str, Any]:
        """Make one update from N transitions or sequences; return measures, and where there were weights `priority` (N,)."""
        loss, error = self._losses(batch)
        weight = batch.get("weight")
        grad_norm = descend(self.optimizer, weighted_mean(loss, weight), self.settings.max_grad_norm)
        self.n_updates += 1
        if self.n_updates % self.settings.target_period == 0:
            follow(self.target, self.model, self.settings.target_rate)
        measures = {"loss": loss.detach().mean().item(), "grad_norm": grad_norm}
        return measures if weight is None else {**measures, "priority": error}

    @torch.no_grad()
    def priority(self, batch: Batch) -> Tensor:
        """Return the priorities (N,) of transitions that were not learned from yet, for actors that send them along."""
        return self._losses(batch)[1]

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss (N,) of each transition, and its priority (N,) without gradient."""
        raise NotImplementedError


class TransitionLearner(ValueLearner):
    """Base of those whose network looks at one observation at a time."""

    def predict(self, obs: Any) -> Tensor:
        """Return the best actions (B,) int64, without noise."""
        with evaluating(self.model):
            best: Tensor = self.model(obs).argmax(dim=-1)
        return best

    def sample(self, obs: Any, epsilon: float | Tensor | None = None) -> Tensor:
        """Return actions (B,) int64: the best, and with probability `epsilon` (without: that of the attribute) any."""
        return epsilon_greedy(self.model(obs), self.epsilon if epsilon is None else epsilon)
