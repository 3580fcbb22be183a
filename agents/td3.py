"""TD3: DDPG with two critics, a delayed actor and smoothed targets. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import ContinuousPolicy
from .bounds import Count, NotNegative
from .continuous_learner import Batch, ContinuousLearner, ContinuousLearning, squared_errors
from .continuous_networks import DeterministicActorCritic
from .encoders import flat_encoder
from .registry import CONTINUOUS_ACTIONS, Entry
from .settings import ContinuousReplaySettings
from .spaces import Spaces
from .tuned import CONTINUOUS
from .value_math import smoothed_action
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class TD3Learning(ContinuousLearning):
    """TD3 as its authors' code has it."""

    actor_period: Count = 2
    """Updates of the critics between two of the actor."""
    target_period: Count = 2
    """Updates of the critics between two moves of the target networks."""
    target_noise: NotNegative = 0.2
    """Standard deviation of the noise on the target's actions."""
    target_noise_limit: NotNegative = 0.5
    """That noise is clipped to between minus this and this."""


class TD3(ContinuousLearner):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

    A step of Adam for both critics on the mean of (target - Q_i(s, a))^2, with

        target = R + gamma^n min_i Q'_i(s', clip(mu'(s') + clip(noise)))

    and every other time one for the actor on the mean of -Q_1(s, mu(s)), after which the target networks follow.

    Args:
        model: `policy(obs)` -> actions (N, D) in [-1, 1], `value(obs, action)` -> (2, N), `get_actor_params()`,
            `get_critic_params()`.
        settings: how it learns.
    """

    settings: TD3Learning

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return squared_errors(self.model.value(batch["obs"], batch["action"]), self._target(batch))

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        settings, next_obs = self.settings, batch["next_obs"]
        action = self.target.policy(next_obs)
        action = smoothed_action(action, torch.randn_like(action), settings.target_noise, settings.target_noise_limit)
        target: Tensor = batch["reward"] + batch["discount"] * self.target.value(next_obs, action).amin(dim=0)
        return target


def network(
    settings: TD3Learning, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256)
) -> DeterministicActorCritic:
    """Return actor and two critics over an encoder."""
    return DeterministicActorCritic(encoder, n_action_dims, hidden_sizes, n_critics=2)


@dataclass(frozen=True, kw_only=True)
class TD3Settings(TD3Learning, ContinuousReplaySettings):
    """TD3."""


def make_model(settings: TD3Settings, spaces: Spaces) -> DeterministicActorCritic:
    """Return actor and critics for an environment's spaces."""
    sizes = [settings.hidden_size] * settings.hidden_layers
    return network(settings, flat_encoder(spaces.obs), spaces.action.shape[0], sizes)


ENTRY = Entry(
    name="td3",
    settings=TD3Settings,
    algorithm=TD3,
    wiring=Replay,
    make_model=make_model,
    make_policy=ContinuousPolicy,
    actions=CONTINUOUS_ACTIONS,
    tuned=CONTINUOUS,
)
