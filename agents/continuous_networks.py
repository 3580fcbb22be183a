"""Actors and critics for continuous actions on flat observations. Knows Model and torch.

Actions lie in [-1, 1]^D; whoever steps the environment maps them onto its bounds. Critics are C networks side by side, whose
values come as (C, N): a pair of them costs less than two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from parl_lite.model import Model

LOG_STD_BOUNDS = (-20.0, 2.0)


class ParallelLinear(nn.Module):
    """C linear layers, each for its own inputs: (C, N, n_in) -> (C, N, n_out); inputs (N, n_in) go to all of them."""

    def __init__(self, n_layers: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_layers, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_layers, 1, n_out).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        n_layers = len(self.weight)
        return torch.baddbmm(self.bias, inputs.expand(n_layers, *inputs.shape[-2:]), self.weight)


class Critics(nn.Module):
    """C critics with ReLU layers over observation and action; K outputs each: (C, N, K)."""

    def __init__(self, n_critics: int, n_inputs: int, hidden_sizes: Sequence[int], n_outputs: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise([n_inputs, *hidden_sizes]):
            layers += [ParallelLinear(n_critics, n_in, n_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, ParallelLinear(n_critics, [n_inputs, *hidden_sizes][-1], n_outputs))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        outputs: Tensor = self.layers(torch.cat([_flat(obs), action], dim=-1))
        return outputs


class _ActorAndCritic(Model):
    actor: nn.Module
    critics: Critics

    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values (C, N) of C critics for observations (N, *obs_shape) and actions (N, D)."""
        outputs: Tensor = self.critics(obs, action)
        return outputs.squeeze(-1)

    def get_actor_params(self) -> list[nn.Parameter]:
        """Return the parameters of the actor alone."""
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        """Return the parameters of the critics alone."""
        return list(self.critics.parameters())


class DeterministicActorCritic(_ActorAndCritic):
    """For DDPG (one critic) and TD3 (two).

    Args:
        obs_shape: of one observation, which is flattened.
        n_action_dims: D.
        hidden_sizes: of each network.
        n_critics: C.
    """

    def __init__(
        self, obs_shape: Sequence[int], n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256), *, n_critics: int = 1
    ) -> None:
        super().__init__()
        n_inputs = math.prod(obs_shape)
        self.actor = _mlp([n_inputs, *hidden_sizes, n_action_dims])
        self.critics = Critics(n_critics, n_inputs + n_action_dims, hidden_sizes)

    def policy(self, obs: Tensor) -> Tensor:
        """Return actions (N, D) in [-1, 1]."""
        return torch.tanh(self.actor(_flat(obs)))


class DistributionalActorCritic(DeterministicActorCritic):
    """For D4PG: the critic gives a distribution on `n_atoms` returns between `low` and `high`."""

    support: Tensor

    def __init__(
        self,
        obs_shape: Sequence[int],
        n_action_dims: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        low: float,
        high: float,
        n_atoms: int = 51,
    ) -> None:
        super().__init__(obs_shape, n_action_dims, hidden_sizes)
        self.critics = Critics(1, math.prod(obs_shape) + n_action_dims, hidden_sizes, n_atoms)
        self.register_buffer("support", torch.linspace(low, high, n_atoms))

    def log_probs(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return log-probabilities (N, K) of the returns in `support` (K,)."""
        return torch.log_softmax(self.critics(obs, action)[0], dim=-1)

    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return expected returns (1, N)."""
        return (self.log_probs(obs, action).exp() @ self.support).unsqueeze(0)


class GaussianActorCritic(_ActorAndCritic):
    """For SAC: a normal distribution that is squashed by tanh, its deviation a function of the observation.

    Args: those of `DeterministicActorCritic`.
    """

    def __init__(
        self, obs_shape: Sequence[int], n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256), *, n_critics: int = 2
    ) -> None:
        super().__init__()
        n_inputs = math.prod(obs_shape)
        self.actor = _mlp([n_inputs, *hidden_sizes, 2 * n_action_dims])
        self.critics = Critics(n_critics, n_inputs + n_action_dims, hidden_sizes)

    def policy(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and log standard deviations (N, D) of the normal distribution before the tanh."""
        mean, log_std = self.actor(_flat(obs)).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD_BOUNDS)


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _flat(obs: Tensor) -> Tensor:
    return obs.reshape(len(obs), -1).to(torch.float32)
