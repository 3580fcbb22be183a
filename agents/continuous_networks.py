"""Actors and critics for continuous actions over any encoder. Knows Model and torch.

Actions lie in [-1, 1]^D; whoever steps the environment maps them onto its bounds. Critics are C networks side by side, whose
values come as (C, N): a pair of them costs less than two. An encoder is what `q_networks.py` says; usually it has no parameters
and joins the numbers of an observation. Where it has some, they belong to the critics, and the actor takes its features as given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from parl_lite.model import Model

from .networks import mlp

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

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        outputs: Tensor = self.layers(torch.cat([features, action], dim=-1))
        return outputs


class ActorAndCritics(Model):
    """What all below have: an encoder, an actor with `n_params` outputs, `n_critics` critics with `n_outputs` each."""

    def __init__(self, encoder: Any, n_params: int, critics: Critics, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor = mlp([encoder.n_features, *hidden_sizes, n_params], output_gain=0.01, activation="relu")
        self.critics = critics

    def value(self, obs: Any, action: Tensor) -> Tensor:
        """Return the values (C, N) of C critics for observations (N, *obs_shape) and actions (N, D)."""
        outputs: Tensor = self.critics(self.encoder(obs), action)
        return outputs.squeeze(-1)

    def get_actor_params(self) -> list[nn.Parameter]:
        """Return the parameters of the actor alone."""
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        """Return the parameters of critics and encoder."""
        return [*self.encoder.parameters(), *self.critics.parameters()]

    def _act(self, obs: Any) -> Tensor:
        outputs: Tensor = self.actor(self.encoder(obs).detach())
        return outputs


class DeterministicActorCritic(ActorAndCritics):
    """For DDPG (one critic) and TD3 (two).

    Args:
        encoder: of observations.
        n_action_dims: D.
        hidden_sizes: of each network.
        n_critics: C.
    """

    def __init__(self, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256), *, n_critics: int = 1) -> None:
        critics = Critics(n_critics, encoder.n_features + n_action_dims, hidden_sizes)
        super().__init__(encoder, n_action_dims, critics, hidden_sizes)

    def policy(self, obs: Any) -> Tensor:
        """Return actions (N, D) in [-1, 1]."""
        return torch.tanh(self._act(obs))


class DistributionalActorCritic(ActorAndCritics):
    """For D4PG: the critic gives a distribution on `n_atoms` returns between `low` and `high`; the rest as above."""

    support: Tensor

    def __init__(
        self,
        encoder: Any,
        n_action_dims: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        low: float,
        high: float,
        n_atoms: int = 51,
    ) -> None:
        critics = Critics(1, encoder.n_features + n_action_dims, hidden_sizes, n_atoms)
        super().__init__(encoder, n_action_dims, critics, hidden_sizes)
        self.register_buffer("support", torch.linspace(low, high, n_atoms))

    def policy(self, obs: Any) -> Tensor:
        """Return actions (N, D) in [-1, 1]."""
        return torch.tanh(self._act(obs))

    def log_probs(self, obs: Any, action: Tensor) -> Tensor:
        """Return log-probabilities (N, K) of the returns in `support` (K,)."""
        return torch.log_softmax(self.critics(self.encoder(obs), action)[0], dim=-1)

    def value(self, obs: Any, action: Tensor) -> Tensor:
        """Return expected returns (1, N)."""
        return (self.log_probs(obs, action).exp() @ self.support).unsqueeze(0)


class GaussianActorCritic(ActorAndCritics):
    """For SAC: a normal distribution that is squashed by tanh, its deviation a function of the observation.

    Args: those of `DeterministicActorCritic`.
    """

    def __init__(self, encoder: Any, n_action_dims: int, hidden_sizes: Sequence[int] = (256, 256), *, n_critics: int = 2) -> None:
        critics = Critics(n_critics, encoder.n_features + n_action_dims, hidden_sizes)
        super().__init__(encoder, 2 * n_action_dims, critics, hidden_sizes)

    def policy(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return means and log standard deviations (N, D) of the normal distribution before the tanh."""
        mean, log_std = self._act(obs).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD_BOUNDS)
