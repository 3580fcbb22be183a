"""What DDPG and its descendants share: steps of critics and actor, target networks. Knows Algorithm and torch.

A batch is a dict of columns (N, ...): obs, action (N, D) float32 in [-1, 1], reward (the discounted sum of n steps) float32,
next_obs (n steps later), discount float32 (gamma^k over k <= n steps; 0 where the episode terminated within them, not where it
was truncated), and from a prioritized buffer weight float32, by which each loss is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parl_lite.algorithm import Algorithm

from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .exploration import add_noise
from .targets import adam, descend, follow, target_of
from .value_math import weighted_mean

Batch = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ContinuousLearning:
    """What every algorithm for continuous actions can be told about learning."""

    gamma: Fraction = 0.99
    """Discount of a reward one step later."""
    n_step: Count = 1
    """Steps whose rewards are summed before the target bootstraps."""
    actor_learning_rate: Positive = 3e-4
    """Learning rate of the actor, for Adam."""
    critic_learning_rate: Positive = 3e-4
    """Learning rate of the critics, for Adam."""
    max_grad_norm: NotNegative = 0.0
    """The gradients of actor and critics are each scaled down to this norm, if longer; 0: never."""
    target_period: Count = 1
    """Updates of the critics between two moves of the target networks."""
    target_rate: Fraction = 0.005
    """How far the target networks then move towards the learning ones (tau)."""
    actor_period: Count = 1
    """Updates of the critics between two of the actor."""
    batch_size: Count = 256
    """Transitions in one update."""
    random_steps: CountOrZero = 10_000
    """Steps at the start of the run whose actions are drawn uniformly."""
    exploration_noise: NotNegative = 0.1
    """Standard deviation of the noise on the actor's actions, which lie between -1 and 1."""
    priority_exponent: NotNegative = 0.0
    """Transitions are drawn in proportion to |TD error| to this power; 0: uniformly."""
    importance_exponent: Fraction = 0.4
    """How far importance weights undo that at first; the exponent rises to 1 over the run."""


class ContinuousLearner(Algorithm):
    """Base of DDPG, TD3, SAC and D4PG; they say what the losses are, in `_critic_losses` and `_actor_loss`.

    Attributes:
        target: the networks that are bootstrapped from.
        exploration: standard deviation of the noise in `sample`, a number or (B, 1) for actors that explore differently.
    """

    def __init__(self, model: Any, settings: ContinuousLearning) -> None:
        super().__init__(model)
        self.settings = settings
        self.target = target_of(model)
        self.actor_optimizer = adam(model.get_actor_params(), settings.actor_learning_rate)
        self.critic_optimizer = adam(model.get_critic_params(), settings.critic_learning_rate)
        self.exploration: float | Tensor = settings.exploration_noise
        self.n_updates = 0

    def predict(self, obs: Tensor) -> Tensor:
        """Return the actor's actions (B, D) in [-1, 1]."""
        action: Tensor = self.model.policy(obs)
        return action

    def sample(self, obs: Tensor) -> Tensor:
        """Return the actor's actions (B, D) with normal noise, clipped to [-1, 1]."""
        return add_noise(self.model.policy(obs), self.exploration)

    def learn(self, batch: Batch) -> dict[str, Any]:
        """Make one update from N transitions; return measures, and the new `priority` (N,) where there were weights."""
        settings, weight = self.settings, batch.get("weight")
        loss, error = self._critic_losses(batch)
        descend(self.critic_optimizer, weighted_mean(loss, weight), settings.max_grad_norm)
        self.n_updates += 1
        measures: dict[str, Any] = {"critic_loss": loss.detach().mean().item()}
        if self.n_updates % settings.actor_period == 0:
            measures |= self._learn_actor(batch)
        if self.n_updates % settings.target_period == 0:
            follow(self.target, self.model, settings.target_rate)
        return measures if weight is None else {**measures, "priority": error}

    @torch.no_grad()
    def priority(self, batch: Batch) -> Tensor:
        """Return the priorities (N,) of transitions that were not learned from yet, for actors that send them along."""
        return self._critic_losses(batch)[1]

    def _learn_actor(self, batch: Batch) -> dict[str, Any]:
        loss = self._actor_loss(batch["obs"])
        descend(self.actor_optimizer, loss, self.settings.max_grad_norm)
        return {"actor_loss": loss.item()}

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss (N,) of each transition, and its priority (N,) without gradient."""
        raise NotImplementedError

    def _actor_loss(self, obs: Tensor) -> Tensor:
        """Return what the actor descends, (): minus the value of its own actions unless said otherwise."""
        value: Tensor = self.model.value(obs, self.model.policy(obs))[0]
        return -value.mean()


def squared_errors(q: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return (error^2 summed over critics (N,), mean |error| (N,)) of values (C, N) and targets (N,)."""
    error = target - q
    return error.square().sum(dim=0), error.detach().abs().mean(dim=0)
