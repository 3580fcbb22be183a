"""SAC: an actor climbs value and entropy, at a temperature that sets itself. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import ContinuousPolicy
from .bounds import Positive
from .continuous_learner import Batch, ContinuousLearner, ContinuousLearning, squared_errors
from .continuous_networks import GaussianActorCritic
from .encoders import flat_encoder
from .registry import CONTINUOUS_ACTIONS, Entry
from .settings import ContinuousReplaySettings
from .spaces import Spaces
from .targets import adam, descend
from .tuned import CONTINUOUS
from .value_math import tanh_log_slope
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class SACLearning(ContinuousLearning):
    """SAC with automatic temperature."""

    temperature: Positive = 1.0
    """Weight of the entropy (alpha); where it starts if it sets itself."""
    automatic_temperature: bool = True
    """Whether the temperature is learned so that the policy keeps its target entropy."""
    temperature_learning_rate: Positive = 3e-4
    """Learning rate of the temperature's logarithm, for Adam."""
    target_entropy: float | None = None
    """Entropy to keep, in nats; without, minus the number of action dimensions."""


class SAC(ContinuousLearner):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), for actions in [-1, 1]^D.

    With actions a' = tanh(u) drawn from the policy, a step of Adam each for the critics on the mean of (target - Q_i(s, a))^2,
    for the actor on the mean of alpha log pi(a|s) - min_i Q_i(s, a), and for the temperature alpha on the mean of
    -log(alpha) (log pi(a|s) + target entropy), where

        target = R + gamma^n (min_i Q'_i(s', a') - alpha log pi(a'|s'))     log pi(a|s) = log N(u) - log(1 - tanh(u)^2)

    Args:
        model: `policy(obs)` -> means and log standard deviations (N, D), `value(obs, action)` -> (2, N),
            `get_actor_params()`, `get_critic_params()`.
        settings: how it learns.
    """

    settings: SACLearning

    def __init__(self, model: Any, settings: SACLearning) -> None:
        super().__init__(model, settings)
        device = next(model.parameters()).device
        self.log_temperature = torch.tensor([math.log(settings.temperature)], device=device, requires_grad=True)
        self.temperature_optimizer = adam([self.log_temperature], settings.temperature_learning_rate)

    @property
    def temperature(self) -> float:
        """The weight of the entropy, alpha."""
        return self.log_temperature.exp().item()

    def predict(self, obs: Tensor) -> Tensor:
        """Return the middle actions (B, D) of the policy."""
        mean, _ = self.model.policy(obs)
        return torch.tanh(mean)

    def sample(self, obs: Tensor) -> Tensor:
        """Return actions (B, D) drawn from the policy."""
        return self._draw(obs)[0]

    def _draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (N, D) and their log-probabilities (N,); the gradient reaches the policy through both."""
        mean, log_std = self.model.policy(obs)
        noise = torch.randn_like(mean)
        before = mean + log_std.exp() * noise  # (N, D), before the tanh
        log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        return torch.tanh(before), (log_normal - tanh_log_slope(before)).sum(dim=-1)

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return squared_errors(self.model.value(batch["obs"], batch["action"]), self._target(batch))

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        action, log_prob = self._draw(batch["next_obs"])
        value = self.target.value(batch["next_obs"], action).amin(dim=0) - self.log_temperature.exp() * log_prob
        target: Tensor = batch["reward"] + batch["discount"] * value
        return target

    def _learn_actor(self, batch: Batch) -> dict[str, Any]:
        settings = self.settings
        action, log_prob = self._draw(batch["obs"])
        value = self.model.value(batch["obs"], action).amin(dim=0)
        loss = (self.log_temperature.exp().detach() * log_prob - value).mean()
        descend(self.actor_optimizer, loss, settings.max_grad_norm)
        if settings.automatic_temperature:
            self._learn_temperature(log_prob.detach(), self._target_entropy(action.shape[-1]))
        return {"actor_loss": loss.item(), "entropy": -log_prob.detach().mean().item(), "temperature": self.temperature}

    def _target_entropy(self, n: int) -> float:
        """Return the entropy to keep for actions of `n` dimensions."""
        return -float(n) if self.settings.target_entropy is None else self.settings.target_entropy

    def _learn_temperature(self, log_prob: Tensor, target_entropy: float) -> None:
        descend(self.temperature_optimizer, -(self.log_temperature * (log_prob + target_entropy)).mean())


def network(
    settings: SACLearning, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256)
) -> GaussianActorCritic:
    """Return actor and two critics over an encoder."""
    return GaussianActorCritic(encoder, n_action_dims, hidden_sizes, n_critics=2)


@dataclass(frozen=True, kw_only=True)
class SACSettings(SACLearning, ContinuousReplaySettings):
    """SAC."""


def make_model(settings: SACSettings, spaces: Spaces) -> GaussianActorCritic:
    """Return actor and critics for an environment's spaces."""
    sizes = [settings.hidden_size] * settings.hidden_layers
    return network(settings, flat_encoder(spaces.obs), spaces.action.shape[0], sizes)


ENTRY = Entry(
    name="sac",
    settings=SACSettings,
    algorithm=SAC,
    wiring=Replay,
    make_model=make_model,
    make_policy=ContinuousPolicy,
    actions=CONTINUOUS_ACTIONS,
    tuned=CONTINUOUS,
)
