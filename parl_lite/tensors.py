"""torch tensors seen as numpy arrays that share their memory, and back.

Knows nothing of wires. Imports torch only when a tensor arrives: where nobody imported torch there is none to send.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from parl_lite.errors import SerializationError

if TYPE_CHECKING:
    import torch

STORAGE: dict[str, np.dtype[Any]] = {
    name: np.dtype(twin)
    for name, twin in {
        **{name: name for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
        **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128")},
        # What numpy lacks is carried as whole numbers of the same width.
        "bfloat16": "int16",
        "complex32": "int32",
        **{f"float8_{kind}": "uint8" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
    }.items()
}
"""The numpy dtype in which the numbers of a torch dtype travel, by the name of the torch dtype."""


def tensor_class() -> type | None:
    """Return `torch.Tensor`, or None where torch was never imported."""
    return getattr(sys.modules.get("torch"), "Tensor", None)


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of the dtype, such as "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return an array of the tensor's shape and of dtype `STORAGE[name]` that shares the tensor's memory.

    Raises TypeError or RuntimeError for what numpy cannot see: another device or layout, a quantized, conjugated or
    negated view, a tensor that requires grad.
    """
    twin = _integer_twins().get(tensor.dtype)
    array: np.ndarray[Any, Any] = (tensor if twin is None else tensor.view(twin)).numpy()
    return array


def from_array(array: np.ndarray[Any, Any], name: str) -> torch.Tensor:
    """Return the tensor of dtype `name` over the memory of `array`, of dtype `STORAGE[name]`; a copy if that is read-only."""
    import torch

    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    dtype = getattr(torch, name)
    return tensor if tensor.dtype is dtype else tensor.view(dtype)


def refuse_unsendable(tensor: torch.Tensor) -> None:
    """Raise SerializationError for a tensor that lives on another device or hangs in a graph of gradients."""
    if tensor.device.type not in ("cpu", "meta"):
        raise SerializationError(
            f"a tensor of shape {tuple(tensor.shape)} lives on {tensor.device}, which the receiver may not have; "
            "send tensor.cpu() (for a module, the state_dict moved to the CPU)"
        )
    if tensor.requires_grad and not tensor.is_leaf:
        raise SerializationError(
            f"a tensor of shape {tuple(tensor.shape)} was computed from others that require grad, and gradients do not "
            "cross processes; send tensor.detach()"
        )


@cache
def _integer_twins() -> dict[torch.dtype, torch.dtype]:
    import torch

    names = [name for name in STORAGE if STORAGE[name].name != name and hasattr(torch, name)]
    return {getattr(torch, name): getattr(torch, STORAGE[name].name) for name in names}
