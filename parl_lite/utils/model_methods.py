"""Whether a model has the methods that an algorithm calls. Knows nothing of torch and of algorithms."""

from __future__ import annotations

from typing import Any


def check_model_method(model: Any, method: str, algo: str) -> None:
    """Raise TypeError that names what is missing, unless `model` has `method`; torch's empty `forward` does not count.

    Args:
        algo: name of the algorithm that asks.
    """
    found = getattr(model, method, None)
    if not callable(found) or getattr(found, "__name__", "") == "_forward_unimplemented":
        raise TypeError(f"{algo} calls model.{method}(), which {type(model).__name__} does not define: add it to the model")
