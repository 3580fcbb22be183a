"""Encoders: from observations to features, for networks over any kind of observation. Knows torch only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Takes observations (..., *obs_shape) of any number type through `layers`, as float32 (M, *obs_shape), to (..., F).

    Args:
        layers: return features (M, F).
        obs_shape: of one observation.
        scale: what observations are multiplied by: 1 / 255 for bytes of an image.

    Attributes:
        n_features: F.
    """

    def __init__(self, layers: nn.Module, obs_shape: Sequence[int], scale: float = 1.0) -> None:
        super().__init__()
        self.layers = layers
        self.obs_shape = tuple(obs_shape)
        self.scale = scale
        with torch.no_grad():
            self.n_features = int(layers(torch.zeros(1, *self.obs_shape)).shape[-1])

    def forward(self, obs: Tensor) -> Tensor:
        leading = obs.shape[: obs.ndim - len(self.obs_shape)]
        flat = obs.reshape(-1, *self.obs_shape).to(torch.float32)
        features: Tensor = self.layers(flat * self.scale if self.scale != 1 else flat)
        return features.reshape(*leading, self.n_features)


class ChannelsFirst(nn.Module):
    """Takes images (M, height, width, channels) to (M, channels, height, width)."""

    def forward(self, image: Tensor) -> Tensor:
        return image.permute(0, 3, 1, 2)


def mlp_encoder(obs_shape: Sequence[int], hidden_sizes: Sequence[int] = (128, 128)) -> Encoder:
    """Return ReLU layers of these widths over flattened observations."""
    sizes = [math.prod(obs_shape), *hidden_sizes]
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return Encoder(nn.Sequential(*layers), obs_shape)


def nature_encoder(obs_shape: Sequence[int]) -> Encoder:
    """Return the convolutions of the Nature DQN (Mnih et al. 2015) over stacked frames, (stack, height, width) uint8."""
    layers = nn.Sequential(
        nn.Conv2d(obs_shape[0], 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
    )
    return Encoder(layers, obs_shape, 1 / 255)


def minatar_encoder(obs_shape: Sequence[int], hidden_size: int = 128) -> Encoder:
    """Return MinAtar's network (Young & Tian 2019, arXiv:1903.03176) over (10, 10, channels) bool: 16 filters and a layer."""
    height, width, channels = obs_shape
    layers = nn.Sequential(
        ChannelsFirst(),
        nn.Conv2d(channels, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (height - 2) * (width - 2), hidden_size),
        nn.ReLU(),
    )
    return Encoder(layers, obs_shape)
