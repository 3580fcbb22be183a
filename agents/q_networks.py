"""Networks of action values over any encoder: plain, dueling, noisy, distributional, recurrent. Knows Model and torch.

An encoder is a module that takes observations (..., *obs_shape) to features (..., F) and has `n_features`. Every network here
returns Q values (..., A) from `forward(obs)`; the distributional ones have the method their algorithm learns from beside it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from parl_lite.model import Model

from .networks import LSTMCore

State = dict[str, Tensor]
"""Recurrent state: `hidden` and `cell`, (B, H) each, and what an algorithm adds."""


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise on its weights (Fortunato et al. 2018, arXiv:1706.10295).

    In training mode each call draws new noise, one for the whole batch; in evaluation mode there is none. With e and f the
    noise of inputs and outputs, sign(x) sqrt|x| of normal numbers, the weights are mu + sigma f e^T.
    """

    def __init__(self, n_in: int, n_out: int, sigma: float = 0.5) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_out, n_in).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((n_out, n_in), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((n_out,), sigma * bound))

    def forward(self, inputs: Tensor) -> Tensor:
        mean = functional.linear(inputs, self.weight, self.bias)
        if not self.training:
            return mean
        noise_in = _signed_root(torch.randn_like(self.weight[0]))
        noise_out = _signed_root(torch.randn_like(self.bias))
        return mean + noise_out * functional.linear(inputs * noise_in, self.weight_sigma, self.bias_sigma)


class Head(nn.Module):
    """From features (..., F) to K numbers an action, (..., A, K).

    Args:
        n_features: F.
        n_actions: A.
        n_outputs: K.
        hidden_size: width of a hidden ReLU layer; 0: none.
        dueling: value plus advantage, whose mean over actions is taken away (Wang et al. 2016, arXiv:1511.06581 eq. 9).
        noisy: with noisy layers.
    """

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        n_outputs: int = 1,
        *,
        hidden_size: int = 0,
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        self.advantage = _stream(n_features, hidden_size, n_actions * n_outputs, noisy)
        self.value = _stream(n_features, hidden_size, n_outputs, noisy) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        advantage: Tensor = self.advantage(features).unflatten(-1, (-1, self.n_outputs))  # (..., A, K)
        if self.value is None:
            return advantage
        value: Tensor = self.value(features).unsqueeze(-2)  # (..., 1, K)
        return value + advantage - advantage.mean(dim=-2, keepdim=True)


class QNetwork(Model):
    """Q values of A actions; the keywords are those of `Head`."""

    def __init__(self, encoder: Any, n_actions: int, **head: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = Head(encoder.n_features, n_actions, **head)

    def forward(self, obs: Any) -> Tensor:
        """Return Q values (..., A) of observations (..., *obs_shape)."""
        values: Tensor = self.head(self.encoder(obs))
        return values.squeeze(-1)


class CategoricalQNetwork(Model):
    """Distributions of returns on K values between `low` and `high`; `head` as in `Head`."""

    support: Tensor

    def __init__(self, encoder: Any, n_actions: int, low: float, high: float, n_atoms: int = 51, **head: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = Head(encoder.n_features, n_actions, n_atoms, **head)
        self.register_buffer("support", torch.linspace(low, high, n_atoms))

    def log_probs(self, obs: Any) -> Tensor:
        """Return log-probabilities (..., A, K) of the returns in `support` (K,)."""
        return torch.log_softmax(self.head(self.encoder(obs)), dim=-1)

    def forward(self, obs: Any) -> Tensor:
        """Return expected returns (..., A)."""
        return self.log_probs(obs).exp() @ self.support


class QuantileQNetwork(Model):
    """Returns at M fixed quantiles, the midpoints of M equal parts of [0, 1]; `head` as in `Head`."""

    fractions: Tensor

    def __init__(self, encoder: Any, n_actions: int, n_quantiles: int = 200, **head: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = Head(encoder.n_features, n_actions, n_quantiles, **head)
        self.register_buffer("fractions", midpoints(n_quantiles))

    def quantiles(self, obs: Any) -> Tensor:
        """Return the returns (..., A, M) at `fractions` (M,)."""
        quantiles: Tensor = self.head(self.encoder(obs))
        return quantiles

    def forward(self, obs: Any) -> Tensor:
        """Return expected returns (..., A)."""
        return self.quantiles(obs).mean(dim=-1)


class ImplicitQuantileNetwork(Model):
    """Returns at any quantiles: features times an embedding of the fraction by cosines (Dabney et al. 2018, arXiv:1806.06923).

    Args:
        encoder: see above.
        n_actions: A.
        n_cosines: cos(pi i fraction) for i from 0 on.
        n_acting: `forward` takes the mean over this many quantiles, evenly spread where the paper draws them.
        head: as in `Head`.
    """

    frequency: Tensor
    fractions: Tensor

    def __init__(self, encoder: Any, n_actions: int, n_cosines: int = 64, n_acting: int = 32, **head: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.embedding = nn.Sequential(nn.Linear(n_cosines, encoder.n_features), nn.ReLU())
        self.head = Head(encoder.n_features, n_actions, **head)
        self.register_buffer("frequency", math.pi * torch.arange(n_cosines))
        self.register_buffer("fractions", midpoints(n_acting))

    def quantiles(self, obs: Any, fractions: Tensor) -> Tensor:
        """Return the returns (..., A, M) at `fractions` (..., M) between 0 and 1."""
        features: Tensor = self.encoder(obs).unsqueeze(-2)  # (..., 1, F)
        cosines = torch.cos(fractions.unsqueeze(-1) * self.frequency)  # (..., M, cosines)
        values: Tensor = self.head(features * self.embedding(cosines))  # (..., M, A, 1)
        return values.squeeze(-1).transpose(-1, -2)

    def forward(self, obs: Any) -> Tensor:
        """Return expected returns (..., A)."""
        return self.quantiles(obs, self.fractions).mean(dim=-1)


class RecurrentQNetwork(Model):
    """Q values of an LSTM over features and `context`: what the agent did and got a step before, and whatever else it knows.

    Args:
        encoder: see above.
        n_actions: A.
        n_context: numbers in the context.
        lstm_size: H.
        head: as in `Head`.
    """

    def __init__(self, encoder: Any, n_actions: int, n_context: int, lstm_size: int = 512, **head: Any) -> None:
        super().__init__()
        self.n_actions = n_actions
        self.encoder = encoder
        self.core = LSTMCore(encoder.n_features + n_context, lstm_size)
        self.head = Head(lstm_size, n_actions, **head)

    def initial_state(self, n: int) -> State:
        """Return the state of `n` environments at the start of an episode."""
        hidden, cell = self.core.initial_state(n)
        return {"hidden": hidden, "cell": cell}

    def unroll(self, obs: Any, context: Tensor, first: Tensor, state: State) -> tuple[Tensor, State]:
        """Return Q values (T, B, A) and the state after the last row.

        Args:
            obs: (T, B, *obs_shape).
            context: (T, B, n_context) float32.
            first: (T, B) bool: the row begins an episode, the state before it is zero.
            state: before row 0.
        """
        inputs = torch.cat([self.encoder(obs), context], dim=-1)
        outputs, (hidden, cell) = self.core(inputs, first, (state["hidden"], state["cell"]))  # (T, B, H)
        values: Tensor = self.head(outputs)
        return values.squeeze(-1), {"hidden": hidden, "cell": cell}


def midpoints(n: int) -> Tensor:
    """Return the middles (n,) of n equal parts of [0, 1]."""
    return (torch.arange(n) + 0.5) / n


def _stream(n_in: int, hidden_size: int, n_out: int, noisy: bool) -> nn.Module:
    linear: Any = NoisyLinear if noisy else nn.Linear
    if hidden_size == 0:
        layer: nn.Module = linear(n_in, n_out)
        return layer
    return nn.Sequential(linear(n_in, hidden_size), nn.ReLU(), linear(hidden_size, n_out))


def _signed_root(noise: Tensor) -> Tensor:
    return noise.sign() * noise.abs().sqrt()
