"""Encoders for networks of action values, from settings. Knows the layers of `networks`; no algorithms."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from .models import NetworkSettings, image_network
from .networks import CNN, Encoder, Images, mlp
from .spaces import ObsLayout, ObsSpec
from .trees import Tree


class Trunk(nn.Module):
    """Features (..., n_features) of observations of any layout: CNNs of images, then an MLP if there is anything else.

    Args:
        layout: of one observation.
        settings: of the network; `network` "auto" gives small images, such as MinAtar's, the CNN of `small_cnn`.
    """

    def __init__(self, layout: ObsLayout, settings: NetworkSettings) -> None:
        super().__init__()
        self.encoder = Encoder(layout, partial(_image_network, settings))
        n_layers = settings.hidden_layers if self.encoder.has_vectors else 0
        sizes = [self.encoder.n_features, *[settings.hidden_size] * n_layers]
        self.hidden = mlp(sizes, activation=settings.activation)
        self.n_features = sizes[-1]

    def forward(self, obs: Tree) -> Tensor:
        features: Tensor = self.hidden(self.encoder(obs))
        return features


def small_cnn(images: Images, n_features: int = 128) -> CNN:
    """Return MinAtar's network (Young & Tian 2019, arXiv:1903.03176): 16 filters of 3x3 and a layer."""
    return CNN(images, nn.Sequential(nn.Conv2d(images.shape[0], 16, 3), nn.ReLU()), n_features)


def flat_encoder(layout: ObsLayout) -> Encoder:
    """Return an encoder without parameters: all numbers of an observation, one after the other."""
    return Encoder(layout, lambda _: None)


def _image_network(settings: NetworkSettings, spec: ObsSpec) -> CNN | None:
    large = image_network(settings, spec)
    is_small_image = large is None and settings.network == "auto" and len(spec.shape) == 3 and not spec.sizes
    if not is_small_image:
        return large
    images = Images(spec, settings.channels_last)
    fits = min(images.shape[1:]) >= 3
    return small_cnn(images, settings.cnn_features or 128) if fits else None
