"""What an algorithm asks of the user's model before it begins. Knows Model and torch; nothing of updates."""

from __future__ import annotations

from typing import TypeVar

import torch

from parl_lite.model import Model
from parl_lite.utils.model_methods import check_model_method

ModelT = TypeVar("ModelT", bound=Model)


def accept(model: ModelT, algorithm: object, *methods: str) -> ModelT:
    """Return the model; raises TypeError that says what is wrong if it is no Model or lacks one of the methods."""
    name = type(algorithm).__name__
    if not isinstance(model, Model):
        raise TypeError(f"{name} needs a parl_lite.Model, not {type(model).__name__}: derive your network from it")
    for method in methods:
        check_model_method(model, method, name)
    return model


def place(model: ModelT) -> ModelT:
    """Return the model on the GPU where there is one, as PARL does."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu")
