"""Layers: MLP, the two CNNs of the Atari papers, an LSTM core, and what makes features of observations. Knows spaces.

All inputs and outputs may have any leading axes, such as (B, ...) or (T, B, ...). Weights are orthogonal with the gains
of PPO: sqrt(2) below an activation, and what the caller says at an output; biases are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parl_lite.errors import ParlError

from .normalize import ObsNormalizer
from .spaces import ObsLayout, ObsSpec
from .trees import Tree

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
State = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, both (B, H)."""


def linear(n_in: int, n_out: int, gain: float = math.sqrt(2)) -> nn.Linear:
    """Return a linear layer with orthogonal weights scaled by `gain`, and no bias at first."""
    layer = nn.Linear(n_in, n_out)
    orthogonal(layer, gain)
    return layer


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = math.sqrt(2)) -> None:
    """Make the weights of a layer orthogonal, scaled by `gain`, and its biases zero."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def mlp(sizes: Sequence[int], output_gain: float | None = None, activation: str = "tanh") -> nn.Sequential:
    """Return linear layers of the given sizes, each followed by the activation.

    With `output_gain` the last one is linear, with weights scaled by it.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [linear(n_in, n_out), activation_of(activation)]
    if output_gain is not None:
        layers[-2:] = [linear(sizes[-2], sizes[-1], output_gain)]
    return nn.Sequential(*layers)


def activation_of(name: str) -> nn.Module:
    """Return an activation by name; raises ParlError for one that there is not."""
    if name not in ACTIVATIONS:
        raise ParlError(f"activation is {name!r}; it can be {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


class Images(nn.Module):
    """Makes of images what a CNN takes: (N, C, H, W) float32, numbers of bytes scaled to between 0 and 1.

    Args:
        spec: the image; its channels are the first axis, or the last where that is the shorter.
        channels_last: the memory layout, with which convolutions on a CPU are faster.
    """

    def __init__(self, spec: ObsSpec, channels_last: bool = True) -> None:
        super().__init__()
        self.permutes = spec.shape[2] < spec.shape[0]
        height, width, channels = spec.shape if self.permutes else (*spec.shape[1:], spec.shape[0])
        self.shape = (channels, height, width)
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, images: Tensor) -> Tensor:
        if self.permutes:
            images = images.permute(0, 3, 1, 2)
        floats = images.to(torch.float32, memory_format=self.memory_format)
        return floats.div_(255) if images.dtype == torch.uint8 else floats  # in place: of bytes, `floats` is a copy


class CNN(nn.Module):
    """Features (..., n_features) of images (..., *shape): convolutions, then a linear layer and a ReLU."""

    def __init__(self, images: Images, convolutions: nn.Module, n_features: int) -> None:
        super().__init__()
        self.images = images
        self.convolutions = convolutions
        self.n_features = n_features
        with torch.no_grad():
            n_flat = convolutions(torch.zeros(1, *images.shape)).numel()
        self.output = nn.Sequential(nn.Flatten(), linear(n_flat, n_features), nn.ReLU())
        self.to(memory_format=images.memory_format)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        leading = images.shape[:-3]
        features: Tensor = self.output(self.convolutions(self.images(images.flatten(0, -4) if leading else images[None])))
        return features.view(*leading, self.n_features)


def nature_cnn(images: Images, n_features: int = 512) -> CNN:
    """Return the network of Mnih et al. 2015: three convolutions."""
    channels = images.shape[0]
    layers: list[nn.Module] = []
    for n_in, n_out, size, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
        layers += [_convolution(n_in, n_out, size, stride), nn.ReLU(inplace=True)]
    return CNN(images, nn.Sequential(*layers), n_features)


def impala_cnn(images: Images, n_features: int = 256, channels: Sequence[int] = (16, 32, 32)) -> CNN:
    """Return the deep network of Espeholt et al. 2018: 15 convolutions in three sections of two residual blocks each."""
    sizes = (images.shape[0], *channels)
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [
            _convolution(n_in, n_out, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(n_out),
            ResidualBlock(n_out),
        ]
    return CNN(images, nn.Sequential(*layers, nn.ReLU()), n_features)


def small_cnn(images: Images, n_features: int = 256) -> CNN:
    """Return four convolutions that each halve an image, for those of 42 pixels, as in OpenAI's universe-starter-agent."""
    sizes = (images.shape[0], 32, 32, 32, 32)
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [_convolution(n_in, n_out, stride=2, padding=1), nn.ReLU(inplace=True)]
    return CNN(images, nn.Sequential(*layers), n_features)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), shape (N, C, H, W) kept."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), _convolution(channels, channels, padding=1), nn.ReLU(), _convolution(channels, channels, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.layers(x)
        return x + residual


class LSTMCore(nn.Module):
    """An LSTM over time, whose state is zeroed wherever an episode begins.

    Attributes:
        n_features: H, the size of its output.
    """

    def __init__(self, n_in: int, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.lstm = nn.LSTM(n_in, n_features)
        for name, parameter in self.lstm.named_parameters():
            nn.init.orthogonal_(parameter) if "weight" in name else nn.init.zeros_(parameter)

    def initial_state(self, n: int) -> State:
        """Return zeros, both (n, H)."""
        zeros = next(self.lstm.parameters()).new_zeros(n, self.n_features)
        return zeros, zeros.clone()

    def forward(self, features: Tensor, first: Tensor, state: State) -> tuple[Tensor, State]:
        """Return (outputs (T, B, H), state) for features (T, B, F), first (T, B) bool and the state before row 0.

        The LSTM runs over pieces in which no episode begins, but in their first row: one piece where none does.
        """
        hidden, cell = (part[None] for part in state)
        outputs = []
        for start, stop in _pieces(first):
            alive = ~first[start].view(1, -1, 1)
            output, (hidden, cell) = self.lstm(features[start:stop], (hidden * alive, cell * alive))
            outputs.append(output)
        return torch.cat(outputs), (hidden[0], cell[0])


class Vector(nn.Module):
    """Numbers (..., n_features) float32 of one array of an observation: flattened, categories one-hot, bytes over 255.

    Args:
        spec: the array.
        normalize: by running mean and variance, where it holds quantities.
    """

    def __init__(self, spec: ObsSpec, normalize: bool = False) -> None:
        super().__init__()
        self.spec = spec
        self.n_features = spec.n_features
        self.normalizer = ObsNormalizer((self.n_features,)) if normalize and not spec.sizes else None

    def forward(self, obs: Tensor) -> Tensor:
        spec = self.spec
        flat = obs.reshape(*obs.shape[: obs.ndim - len(spec.shape)], -1)
        if spec.sizes:
            numbers = (flat[..., i].long() - start for i, start in enumerate(spec.starts))
            return torch.cat([F.one_hot(n, size) for n, size in zip(numbers, spec.sizes, strict=True)], dim=-1).float()
        if self.normalizer is not None:
            normalized: Tensor = self.normalizer(flat)
            return normalized
        return flat / 255 if spec.dtype == np.uint8 else flat.to(torch.float32)

    def observe(self, obs: Tensor, valid: Tensor) -> None:
        """Update the statistics from the valid rows of observations (T, B, *shape); valid (T, B) bool."""
        if self.normalizer is not None:
            self.normalizer.update(obs[valid].flatten(1))


class Encoder(nn.Module):
    """Features (..., n_features) of observations of any layout: those of each array, one after the other.

    Args:
        layout: of one observation.
        image_network: makes a CNN for an array; gives None where the array is no image.
        normalize: quantities, but not images, by running mean and variance.

    Attributes:
        n_features: numbers that come out.
        has_vectors: whether some come from arrays that are no images.
    """

    def __init__(self, layout: ObsLayout, image_network: Callable[[ObsSpec], CNN | None], normalize: bool = False) -> None:
        super().__init__()
        self.paths = [path for path, _ in arrays_of(layout)]
        parts = [image_network(spec) or Vector(spec, normalize) for _, spec in arrays_of(layout)]
        self.parts = nn.ModuleList(parts)
        self.has_vectors = any(isinstance(part, Vector) for part in parts)
        self.n_features = sum(part.n_features for part in parts)

    def forward(self, obs: Tree) -> Tensor:
        features = [part(_at(obs, path)) for path, part in zip(self.paths, self.parts, strict=True)]
        return features[0] if len(features) == 1 else torch.cat(features, dim=-1)

    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Update the running statistics from the valid rows of observations (T, B, *shape); valid (T, B) bool."""
        for path, part in zip(self.paths, self.parts, strict=True):
            if isinstance(part, Vector):
                part.observe(_at(obs, path), valid)


def arrays_of(layout: ObsLayout, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ObsSpec]]:
    """Yield (names of the dicts to go through, spec) of each array of an observation."""
    if isinstance(layout, dict):
        for name, child in layout.items():
            yield from arrays_of(child, (*path, name))
    else:
        yield path, layout


def _at(tree: Tree, path: tuple[str, ...]) -> Tensor:
    for name in path:
        tree = tree[name]
    return tree  # type: ignore[no-any-return]


def _pieces(first: Tensor) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the longest pieces of rows in which an episode begins nowhere but in the first."""
    (begins,) = torch.nonzero(first[1:].any(dim=1), as_tuple=True)
    starts = [0, *(begins + 1).tolist()]
    return zip(starts, [*starts[1:], len(first)], strict=True)


def _convolution(n_in: int, n_out: int, size: int = 3, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    layer = nn.Conv2d(n_in, n_out, size, stride, padding)
    orthogonal(layer)
    return layer
