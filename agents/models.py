"""Actor-critics for any spaces, from settings. Knows the layers of `networks` and the distributions; no algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from parl_lite.errors import ParlError
from parl_lite.model import Model

from .bounds import Count, CountOrZero
from .distributions import distribution_for
from .networks import CNN, Encoder, Images, LSTMCore, arrays_of, impala_cnn, linear, mlp, nature_cnn, small_cnn
from .spaces import ActionKind, BoxActions, ObsSpec, Spaces
from .trees import Tree

Network = Literal["auto", "mlp", "nature", "impala", "small"]
Activation = Literal["tanh", "relu", "elu", "silu"]
MIN_IMAGE_SIDE = 36
"""Images less wide or high are too small for the strides of the nature network."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The network of policy and value."""

    network: Network = "auto"
    """Layers for images: nature (3 convolutions), impala (15), small (4, for 42 pixels), mlp; auto: nature from 36 on."""
    hidden_size: Count = 64
    """Width of hidden layers."""
    hidden_layers: Count = 2
    """Hidden layers of an MLP; after a CNN its own linear layer is the only one."""
    cnn_features: CountOrZero = 0
    """Width of the linear layer of a CNN; 0: 512 for nature, 256 for impala and small, as in the papers."""
    lstm_size: CountOrZero = 0
    """Width of an LSTM after the hidden layers; 0: none."""
    activation: Activation = "tanh"
    """Activation of an MLP: tanh, relu, elu or silu."""
    shared: bool = False
    """Policy and value share the hidden layers, as they always do with a CNN or an LSTM."""
    squash: bool = False
    """Continuous actions are squashed into their bounds by tanh, instead of clipped."""
    log_std: float = 0.0
    """Logarithm of the standard deviation of continuous actions at first; it does not depend on the observation."""
    normalize_obs: bool = False
    """Observations that are no images are normalised by their running mean and variance."""
    channels_last: bool = True
    """Memory layout of images in a CNN; on CPUs convolutions are faster with it."""


class ActorCritic(Model):
    """What both networks below share: the head of the policy, and the protocol of `unrolling.py`.

    Attributes:
        distribution: makes the distribution of actions from the policy's parameters (..., P).
    """

    def __init__(self, spaces: Spaces, settings: NetworkSettings) -> None:
        super().__init__()
        self.distribution = distribution_for(spaces.action, squash=settings.squash)
        self.encoder = Encoder(spaces.obs, partial(image_network, settings), settings.normalize_obs)

    def policy(self, obs: Tree) -> Tensor:
        """Return the parameters (..., P) float32 of the distribution of actions for observations (..., *shape)."""
        raise NotImplementedError

    def value(self, obs: Tree) -> Tensor:
        """Return state values (...) float32 for observations (..., *shape)."""
        raise NotImplementedError

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Return (parameters (..., P), values (...))."""
        return self.policy(obs), self.value(obs)

    def unroll(self, obs: Tree, first: Tensor, state: Tree = ()) -> tuple[Tensor, Tensor, Tree]:
        """Return (parameters (T, B, P), values (T, B), state) for observations (T, B, *shape)."""
        return (*self(obs), state)

    def initial_state(self, n: int) -> Tree:
        """Return the state (n, ...) before an episode: none."""
        return ()

    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Update the running statistics from the valid rows of observations (T, B, *shape); valid (T, B) bool."""
        self.encoder.observe(obs, valid)


class SeparateActorCritic(ActorCritic):
    """Two MLPs, one for the policy and one for the value."""

    def __init__(self, spaces: Spaces, settings: NetworkSettings) -> None:
        super().__init__(spaces, settings)
        sizes = [self.encoder.n_features, *[settings.hidden_size] * settings.hidden_layers]
        self.actor = mlp(sizes, activation=settings.activation).append(policy_head(sizes[-1], spaces.action, settings))
        self.critic = mlp([*sizes, 1], output_gain=1.0, activation=settings.activation)

    def policy(self, obs: Tree) -> Tensor:
        """Return the parameters (..., P)."""
        params: Tensor = self.actor(self.encoder(obs))
        return params

    def value(self, obs: Tree) -> Tensor:
        """Return state values (...)."""
        values: Tensor = self.critic(self.encoder(obs))
        return values.squeeze(-1)

    def get_actor_params(self) -> list[nn.Parameter]:
        """Return the parameters of the policy alone, for optimisers that tell them apart."""
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        """Return the parameters of the value alone."""
        return list(self.critic.parameters())


class SharedActorCritic(ActorCritic):
    """One trunk, a CNN or an MLP or both, then an LSTM if there is one; policy and value are linear in what it gives."""

    def __init__(self, spaces: Spaces, settings: NetworkSettings) -> None:
        super().__init__(spaces, settings)
        n_layers = settings.hidden_layers if self.encoder.has_vectors else 0
        sizes = [self.encoder.n_features, *[settings.hidden_size] * n_layers]
        self.hidden = mlp(sizes, activation=settings.activation)
        self.core = LSTMCore(sizes[-1], settings.lstm_size) if settings.lstm_size else None
        n_features = settings.lstm_size or sizes[-1]
        self.policy_head = policy_head(n_features, spaces.action, settings)
        self.value_head = linear(n_features, 1, gain=1.0)

    def policy(self, obs: Tree) -> Tensor:
        """Return the parameters (..., P); raises ParlError for a recurrent network, which needs `unroll`."""
        params: Tensor = self.policy_head(self._features(obs))
        return params

    def value(self, obs: Tree) -> Tensor:
        """Return state values (...); raises ParlError for a recurrent network, which needs `unroll`."""
        values: Tensor = self.value_head(self._features(obs))
        return values.squeeze(-1)

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Return (parameters (..., P), values (...)) of one pass through the trunk."""
        return self._heads(self._features(obs))

    def unroll(self, obs: Tree, first: Tensor, state: Tree = ()) -> tuple[Tensor, Tensor, Tree]:
        """Return (parameters (T, B, P), values (T, B), state); the state is zeroed wherever `first` (T, B) is True."""
        features = self.hidden(self.encoder(obs))  # (T, B, F)
        if self.core is not None:
            features, state = self.core(features, first, state)
        return (*self._heads(features), state)

    def initial_state(self, n: int) -> Tree:
        """Return the state of the LSTM before an episode, two tensors (n, lstm_size); () without one."""
        return () if self.core is None else self.core.initial_state(n)

    def _features(self, obs: Tree) -> Tensor:
        if self.core is not None:
            raise ParlError("a recurrent network has no policy and value of an observation alone: call unroll()")
        features: Tensor = self.hidden(self.encoder(obs))
        return features

    def _heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy_head(features), self.value_head(features).squeeze(-1)


class GaussianHead(nn.Module):
    """Means that are linear in the features, and log standard deviations that do not depend on them: (..., 2 n)."""

    def __init__(self, n_in: int, n_actions: int, log_std: float) -> None:
        super().__init__()
        self.mean = linear(n_in, n_actions, gain=0.01)
        self.log_std = nn.Parameter(torch.full((n_actions,), log_std))

    def forward(self, features: Tensor) -> Tensor:
        mean: Tensor = self.mean(features)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)


def actor_critic(settings: NetworkSettings, spaces: Spaces) -> ActorCritic:
    """Return a network for an environment's spaces; raises ParlError where the settings do not fit them.

    `functools.partial(actor_critic, settings)` is the maker of models that actors ask for.
    """
    if settings.network not in get_args(Network):
        raise ParlError(f"network is {settings.network!r}; it can be {', '.join(get_args(Network))}")
    networks = {_network_for(settings.network, spec) for _, spec in arrays_of(spaces.obs)}
    if settings.network not in {"auto", *networks}:
        raise ParlError(f"network is {settings.network}, but no observation is an image, an array of three axes: try mlp")
    shared = settings.shared or settings.lstm_size or networks != {"mlp"}
    return SharedActorCritic(spaces, settings) if shared else SeparateActorCritic(spaces, settings)


def policy_head(n_in: int, action: ActionKind, settings: NetworkSettings) -> nn.Module:
    """Return the last layer of a policy: parameters (..., P) of features (..., n_in)."""
    if isinstance(action, BoxActions):
        return GaussianHead(n_in, len(action.low), settings.log_std)
    return linear(n_in, action.n_params, gain=0.01)


def image_network(settings: NetworkSettings, spec: ObsSpec) -> CNN | None:
    """Return the CNN for one array of an observation; None where an MLP takes it."""
    network = _network_for(settings.network, spec)
    if network == "mlp":
        return None
    images = Images(spec, settings.channels_last)
    if network == "impala":
        return impala_cnn(images, settings.cnn_features or 256)
    if network == "small":
        return small_cnn(images, settings.cnn_features or 256)
    return nature_cnn(images, settings.cnn_features or 512)


def _network_for(network: Network, spec: ObsSpec) -> str:
    """Return "mlp", "nature", "impala" or "small" for one array; raises ParlError for images that are too small."""
    image = len(spec.shape) == 3 and not spec.sizes
    large = image and sorted(spec.shape)[1] >= MIN_IMAGE_SIDE
    if network == "nature" and image and not large:
        raise ParlError(f"images of shape {spec.shape} are too small for network nature ({MIN_IMAGE_SIDE} pixels): try impala")
    if network == "auto":
        return "nature" if large else "mlp"
    return network if image else "mlp"
