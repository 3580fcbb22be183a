"""Checkpoint files: plain state to a file and back, whole or not at all. Knows nothing of agents and algorithms.

A file is written by `torch.save` and read with `weights_only=True`, so reading a foreign file never runs its code.
What torch's restricted reader refuses is turned into plain values before: numpy arrays and scalars travel as bytes
with their dtype. Anything else is refused when it is saved, not when it is missed.
"""

from __future__ import annotations

import os
import pickle
import secrets
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parl_lite.errors import SerializationError

FORMAT = "parl_lite.checkpoint"
VERSION = 1
_ARRAY = "__numpy__"


def save(path: str | os.PathLike[str], state: Any) -> None:
    """Write `state` to `path`, atomically: a reader, or a crash at any moment, finds the old file or the new one.

    Args:
        path: the file; missing parent folders are made.
        state: None, bool, int, float, complex, str, bytes, torch tensors, numpy arrays and scalars, and dict,
            OrderedDict, list, tuple and set of these.

    Raises:
        SerializationError: for any other value, named by its place in `state`.
    """
    target = Path(path)
    document = {"format": FORMAT, "version": VERSION, "state": _plain(state, "state")}
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb") as file:
            torch.save(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> Any:
    """Return the state that `save` wrote to `path`; its tensors land on `map_location`.

    Raises:
        FileNotFoundError: there is no such file.
        SerializationError: the file is truncated, foreign, or of a newer format.
    """
    document = _read(path, map_location)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SerializationError(f"{path} is not a checkpoint of parl_lite, though torch can read it: use torch.load")
    if document["version"] > VERSION:
        raise SerializationError(
            f"{path} has checkpoint format {document['version']}, but this parl_lite reads up to {VERSION}: update it"
        )
    return _rich(document["state"])


def _read(path: str | os.PathLike[str], map_location: Any) -> Any:
    with open(path, "rb") as file:
        try:
            with warnings.catch_warnings():  # a foreign pickle may name anything; the error below says enough
                warnings.simplefilter("ignore")
                return torch.load(file, map_location=map_location, weights_only=True)
        except (
            RuntimeError,
            pickle.UnpicklingError,
            EOFError,
            LookupError,
            ValueError,
            AttributeError,
            TypeError,
        ) as error:
            size = os.path.getsize(path)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SerializationError(
                f"{path} ({size} bytes) cannot be read as a checkpoint: "
                f"it is truncated or was not written by parl_lite ({reason})"
            ) from error


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(value: Any, place: str) -> Any:
    """Return `value` with numpy replaced by what torch's restricted reader accepts."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray | np.generic):
        return _plain_array(value, place)
    if isinstance(value, dict):
        return _plain_dict(value, place)
    if type(value) in (list, tuple, set):
        return type(value)([_plain(item, f"{place}[{index}]") for index, item in enumerate(value)])
    raise SerializationError(
        f"{place} is a {type(value).__qualname__}, which a checkpoint cannot hold: "
        f"give numbers, text, arrays, tensors or containers of these"
    )


def _plain_dict(value: dict[Any, Any], place: str) -> dict[Any, Any]:
    if type(value) not in (dict, OrderedDict):
        raise SerializationError(f"{place} is a {type(value).__qualname__}, which a checkpoint cannot hold: give a dict")
    items = ((_plain(key, f"{place} key"), _plain(item, f"{place}[{key!r}]")) for key, item in value.items())
    result = type(value)(items)
    if hasattr(value, "_metadata"):  # the version of each layer in a module's state dict
        vars(result)["_metadata"] = vars(value)["_metadata"]
    return result


def _plain_array(value: Any, place: str) -> dict[str, Any]:
    if value.dtype.hasobject or value.dtype.names:
        raise SerializationError(
            f"{place} is an array of dtype {value.dtype}, which a checkpoint cannot hold: give plain columns"
        )
    array = np.ascontiguousarray(value)
    data = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    return {_ARRAY: data, "dtype": array.dtype.str, "shape": value.shape, "scalar": isinstance(value, np.generic)}


def _rich(value: Any) -> Any:
    """Undo `_plain`."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return _rich_array(value)
        for key, item in value.items():  # in place: keeps the type and the metadata
            value[key] = _rich(item)
        return value
    if type(value) in (list, tuple, set):
        return type(value)([_rich(item) for item in value])
    return value


def _rich_array(value: dict[str, Any]) -> Any:
    array = value[_ARRAY].cpu().numpy().view(np.dtype(value["dtype"])).reshape(value["shape"])
    return array[()] if value["scalar"] else array
