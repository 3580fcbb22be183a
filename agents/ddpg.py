"""DDPG: an actor climbs the value that a critic gives its actions. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import ContinuousPolicy
from .bounds import Positive
from .continuous_learner import Batch, ContinuousLearner, ContinuousLearning, squared_errors
from .continuous_networks import DeterministicActorCritic
from .encoders import flat_encoder
from .registry import CONTINUOUS_ACTIONS, Entry
from .settings import ContinuousReplaySettings
from .spaces import Spaces
from .tuned import CONTINUOUS
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class DDPGLearning(ContinuousLearning):
    """DDPG with normal noise and the networks of today."""

    actor_learning_rate: Positive = 1e-3
    """Learning rate of the actor, for Adam."""
    critic_learning_rate: Positive = 1e-3
    """Learning rate of the critic, for Adam."""


class DDPG(ContinuousLearner):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

    A step of Adam for the critic on the mean of (R + gamma^n Q'(s', mu'(s')) - Q(s, a))^2, one for the actor on the mean of
    -Q(s, mu(s)), and the target networks Q' and mu' follow.

    Args:
        model: `policy(obs)` -> actions (N, D) in [-1, 1], `value(obs, action)` -> (1, N), `get_actor_params()`,
            `get_critic_params()`.
        settings: how it learns.
    """

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return squared_errors(self.model.value(batch["obs"], batch["action"]), self._target(batch))

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        next_obs = batch["next_obs"]
        target: Tensor = batch["reward"] + batch["discount"] * self.target.value(next_obs, self.target.policy(next_obs))[0]
        return target


def network(
    settings: DDPGLearning, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256)
) -> DeterministicActorCritic:
    """Return actor and critic over an encoder."""
    return DeterministicActorCritic(encoder, n_action_dims, hidden_sizes)


@dataclass(frozen=True, kw_only=True)
class DDPGSettings(DDPGLearning, ContinuousReplaySettings):
    """DDPG."""


def make_model(settings: DDPGSettings, spaces: Spaces) -> DeterministicActorCritic:
    """Return actor and critics for an environment's spaces."""
    sizes = [settings.hidden_size] * settings.hidden_layers
    return network(settings, flat_encoder(spaces.obs), spaces.action.shape[0], sizes)


ENTRY = Entry(
    name="ddpg",
    settings=DDPGSettings,
    algorithm=DDPG,
    wiring=Replay,
    make_model=make_model,
    make_policy=ContinuousPolicy,
    actions=CONTINUOUS_ACTIONS,
    tuned=CONTINUOUS,
)
