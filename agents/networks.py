"""Networks for the algorithms of this package. Knows Model and spaces; nothing of algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from parl_lite.model import Model

from .envs import Spaces


def mlp(sizes: Sequence[int], output_gain: float) -> nn.Sequential:
    """Return tanh layers of the given sizes with orthogonal weights and a linear output scaled by `output_gain`."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        linear = nn.Linear(n_in, n_out)
        nn.init.orthogonal_(linear.weight, math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    layers.pop()
    nn.init.orthogonal_(layers[-1].weight, output_gain)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


class ActorCritic(Model):
    """Two separate MLPs on flat observations: one for the policy, one for the value.

    Args:
        obs_shape: shape of one observation; it is flattened.
        n_actions: number of discrete actions A.
        hidden_sizes: widths of the hidden layers of both.
    """

    def __init__(self, obs_shape: Sequence[int], n_actions: int, hidden_sizes: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        self.n_dims = len(obs_shape)
        n_inputs = math.prod(obs_shape)
        self.actor = mlp([n_inputs, *hidden_sizes, n_actions], output_gain=0.01)
        self.critic = mlp([n_inputs, *hidden_sizes, 1], output_gain=1.0)

    def policy(self, obs: Tensor) -> Tensor:
        """Return logits (..., A) float32 for observations (..., *obs_shape)."""
        logits: Tensor = self.actor(self._flat(obs))
        return logits

    def value(self, obs: Tensor) -> Tensor:
        """Return state values (...) float32 for observations (..., *obs_shape)."""
        values: Tensor = self.critic(self._flat(obs))
        return values.squeeze(-1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (..., A), values (...))."""
        return self.policy(obs), self.value(obs)

    def get_actor_params(self) -> list[nn.Parameter]:
        """Return the parameters of the policy alone, for optimisers that tell them apart."""
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        """Return the parameters of the value alone."""
        return list(self.critic.parameters())

    def _flat(self, obs: Tensor) -> Tensor:
        return obs.to(torch.float32).reshape(*obs.shape[: obs.ndim - self.n_dims], -1)


def actor_critic(hidden_size: int, spaces: Spaces) -> ActorCritic:
    """Return an ActorCritic of two hidden layers for an environment's spaces."""
    return ActorCritic(spaces.obs_shape, spaces.n_actions, (hidden_size, hidden_size))
