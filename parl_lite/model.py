"""Model: the network. Knows torch and numpy, nothing of clusters, optimisers or losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    """A torch module whose weights travel as numpy arrays.

    Subclass it as `nn.Module`: build the layers in `__init__` after `super().__init__()` and give it the methods
    your algorithm asks for, such as `forward`, `policy` and `value`.
    """

    def get_weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of all parameters and buffers by name; changing one changes nothing here.

        Number types that numpy lacks (bfloat16, float8) come as float32, which holds each of their values exactly.
        """
        return {name: _to_numpy(tensor) for name, tensor in _tensors(self).items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copy `weights` (what `get_weights` returned) into the parameters and buffers, all of them or, on an error,
        none.

        Raises ValueError that names what is missing, unknown or of another shape.
        """
        own = _tensors(self)
        _check_names(own, weights)
        new = {name: _to_tensor(weights[name]) for name in own}
        for name, tensor in own.items():
            if new[name].shape != tensor.shape:
                raise ValueError(f"weight {name!r} has shape {tuple(new[name].shape)}, not {tuple(tensor.shape)}")
        for name, tensor in own.items():
            tensor.copy_(new[name])

    @torch.no_grad()
    def sync_weights_to(self, target_model: Model, decay: float = 0.0) -> None:
        """Move the weights of `target_model`, a model of the same class, towards these.

        target = decay * target + (1 - decay) * self for every parameter; buffers (running statistics, counters) are
        copied.
        """
        if target_model is self:
            raise ValueError("a model cannot be its own target: make a copy with copy.deepcopy(model)")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay={decay} is not between 0 and 1")
        targets = dict(target_model.named_parameters())
        buffers = dict(target_model.named_buffers())
        _check_names(targets, dict(self.named_parameters()))
        _check_names(buffers, dict(self.named_buffers()))
        for name, parameter in self.named_parameters():
            if decay == 0:  # not 0 * target, which is NaN where the target is
                targets[name].copy_(parameter)
            else:
                targets[name].copy_(decay * targets[name] + (1 - decay) * parameter)
        for name, buffer in self.named_buffers():
            buffers[name].copy_(buffer)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the live parameters and buffers, detached; state that is no tensor (`get_extra_state`) stays behind."""
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    try:
        return tensor.numpy().copy()
    except TypeError:
        return tensor.float().numpy()


def _to_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    array = np.asarray(value)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _check_names(expected: Mapping[str, object], given: Mapping[str, object]) -> None:
    missing, unknown = sorted(expected.keys() - given.keys()), sorted(given.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(f"the weights are not of this model: missing {missing}, unknown {unknown}")
