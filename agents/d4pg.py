"""D4PG: DDPG whose critic learns the distribution of returns, for many actors.

Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import ContinuousPolicy
from .bounds import Count, Fraction, NotNegative, Positive
from .continuous_learner import Batch, ContinuousLearner, ContinuousLearning
from .continuous_networks import DistributionalActorCritic
from .encoders import flat_encoder
from .registry import CONTINUOUS_ACTIONS, Entry
from .settings import ContinuousReplaySettings
from .spaces import Spaces
from .tuned import CONTINUOUS, tuned
from .value_math import categorical_cross_entropy, project_categorical
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class D4PGLearning(ContinuousLearning):
    """D4PG; the range of values belongs to the rewards of the environment."""

    n_step: Count = 5
    """Steps whose rewards are summed before the target bootstraps."""
    actor_learning_rate: Positive = 1e-4
    """Learning rate of the actor, for Adam."""
    critic_learning_rate: Positive = 1e-4
    """Learning rate of the critic, for Adam."""
    target_period: Count = 100
    """Updates of the critic between two moves of the target networks."""
    target_rate: Fraction = 1.0
    """How far the target networks then move towards the learning ones (tau)."""
    exploration_noise: NotNegative = 0.3
    """Standard deviation of the noise on the actor's actions, which lie between -1 and 1."""
    n_atoms: Count = 51
    """Returns that the distribution is over, equally spaced."""
    value_low: float = -150.0
    """The lowest of them: no return should be below."""
    value_high: float = 150.0
    """The highest of them: no return should be above."""


class D4PG(ContinuousLearner):
    """Distributed distributional deterministic policy gradient (Barth-Maron et al. 2018, arXiv:1804.08617).

    A step of Adam for the critic on the mean cross entropy of Z(s, a) from the target R + gamma^n Z'(s', mu'(s')), projected
    onto the atoms as in C51, and one for the actor on the mean of -E Z(s, mu(s)). The KL divergence is the priority.

    Args:
        model: `policy(obs)` -> actions (N, D) in [-1, 1], `log_probs(obs, action)` -> (N, K), `support` (K,),
            `value(obs, action)` -> expected returns (1, N), `get_actor_params()`, `get_critic_params()`.
        settings: how it learns.
    """

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        target = self._target(batch)  # (N, K)
        loss = categorical_cross_entropy(self.model.log_probs(batch["obs"], batch["action"]), target)
        entropy = -torch.special.xlogy(target, target).sum(dim=-1)
        return loss, (loss.detach() - entropy).clamp(min=0)

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        next_obs, support = batch["next_obs"], self.target.support
        probs = self.target.log_probs(next_obs, self.target.policy(next_obs)).exp()
        position = batch["reward"].unsqueeze(-1) + batch["discount"].unsqueeze(-1) * support  # (N, K)
        return project_categorical(position, probs, support)


def network(
    settings: D4PGLearning, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256)
) -> DistributionalActorCritic:
    """Return actor and distributional critic over an encoder."""
    low, high, n_atoms = settings.value_low, settings.value_high, settings.n_atoms
    return DistributionalActorCritic(encoder, n_action_dims, hidden_sizes, low=low, high=high, n_atoms=n_atoms)


@dataclass(frozen=True, kw_only=True)
class D4PGSettings(D4PGLearning, ContinuousReplaySettings):
    """D4PG."""


def make_model(settings: D4PGSettings, spaces: Spaces) -> DistributionalActorCritic:
    """Return actor and critics for an environment's spaces."""
    sizes = [settings.hidden_size] * settings.hidden_layers
    return network(settings, flat_encoder(spaces.obs), spaces.action.shape[0], sizes)


RANGES = {
    "Pendulum-v1": {"value_low": -1_000.0, "value_high": 0.0},
    "HalfCheetah-v5": {"value_low": -200.0, "value_high": 1_200.0},
    "Hopper-v5": {"value_low": 0.0, "value_high": 400.0},
}
"""Ranges of discounted returns, by environment."""

ENTRY = Entry(
    name="d4pg",
    settings=D4PGSettings,
    algorithm=D4PG,
    wiring=Replay,
    make_model=make_model,
    make_policy=ContinuousPolicy,
    actions=CONTINUOUS_ACTIONS,
    tuned=tuned(CONTINUOUS, RANGES),
)
