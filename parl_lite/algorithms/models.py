"""What an algorithm asks of the user's model before it begins. Knows Model and torch; nothing of updates."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from parl_lite.utils.model_methods import check_model_method

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def accept(model: ModuleT, algorithm: object, *methods: str) -> ModuleT:
    """Return the model on the GPU where there is one, as PARL does; raises TypeError if it lacks one of the methods."""
    for method in methods:
        check_model_method(model, method, type(algorithm).__name__)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")
