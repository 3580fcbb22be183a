"""What an object needs to go on bit by bit: its attributes to plain state and back. Knows nothing of files and agents.

An attribute is saved by its kind:

    has state_dict() and load_state_dict()         its state dict, loaded in place (modules, optimisers, schedules)
    None, bool, int, float, complex, str, bytes    the value
    numpy array, torch tensor                      the value, loaded in place where shape and dtype agree, so that an
                                                   optimiser which holds the tensor still does
    torch.Generator, random.Random,                the position of the stream, loaded in place
    numpy Generator and RandomState
    list, tuple, deque, dict of these              each element

Functions, classes, devices, dtypes, enums, paths, frozen dataclasses and names that start with two underscores are
taken for configuration, which the program makes anew. Everything else is reported as not saved.
"""

from __future__ import annotations

import enum
import functools
import inspect
import pathlib
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch

State = dict[str, Any]
_VALUES = (type(None), bool, int, float, complex, str, bytes, np.generic)
_CONFIGURATION = (
    type,
    types.ModuleType,
    functools.partial,
    torch.device,
    torch.dtype,
    np.dtype,
    enum.Enum,
    pathlib.PurePath,
)


class NotSaveable(Exception):
    """The value is of a kind that cannot be saved."""


def capture(attributes: Mapping[str, Any], skip: Iterable[str] = ()) -> tuple[State, list[str]]:
    """Return (state by name, names that could not be saved) of `attributes`, usually `vars(self)`."""
    state: State = {}
    lost: list[str] = []
    for name, value in _stateful(attributes, skip):
        try:
            state[name] = _capture(value)
        except NotSaveable:
            lost.append(f"{name} ({type(value).__qualname__})")
    return state, lost


def restore(attributes: MutableMapping[str, Any], state: State, skip: Iterable[str] = ()) -> list[str]:
    """Put `state` back into `attributes`, usually `vars(self)`; return in words what only one side has."""
    amiss: list[str] = []
    for name, saved in state.items():
        if name in attributes:
            attributes[name] = _restore(attributes[name], saved)
        else:
            amiss.append(f"{name} is in the checkpoint only")
    for name, value in _stateful(attributes, skip):
        if name not in state:
            amiss.append(f"{name} ({type(value).__qualname__}) is not in the checkpoint")
    return amiss


def capture_randomness() -> State:
    """Return the positions of the process's global random streams: random, numpy, torch and CUDA where it is in use."""
    state: State = {
        "random": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_randomness(state: State) -> list[str]:
    """Put the global random streams back; return in words what could not be."""
    random.setstate(state["random"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" not in state:
        return []
    if torch.cuda.device_count() != len(state["cuda"]):
        return [f"the random streams of {len(state['cuda'])} CUDA devices (here are {torch.cuda.device_count()})"]
    torch.cuda.set_rng_state_all([device.cpu() for device in state["cuda"]])
    return []


def _stateful(attributes: Mapping[str, Any], skip: Iterable[str]) -> list[tuple[str, Any]]:
    """Return the attributes that are not configuration."""
    names = [name for name in attributes if name not in set(skip) and not name.startswith("__")]
    return [(name, attributes[name]) for name in names if not _is_configuration(attributes[name])]


def _is_configuration(value: Any) -> bool:
    if isinstance(value, _CONFIGURATION) or inspect.isroutine(value):
        return True
    parameters: Any = getattr(value, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _has_state_dict(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _capture(value: Any) -> Any:
    if isinstance(value, _VALUES):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        return _copy(value)
    if _has_state_dict(value):
        return value.state_dict()
    for kind, (get, _) in _STREAMS.items():
        if isinstance(value, kind):
            return get(value)
    if isinstance(value, list | tuple | deque):
        return [_capture(item) for item in value]
    if isinstance(value, dict):
        return {key: _capture(item) for key, item in value.items()}
    if _is_configuration(value):
        return None
    raise NotSaveable


def _restore(value: Any, saved: Any) -> Any:
    """Return what takes the place of `value`: `value` itself where it can be changed in place."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return _restore_array(value, saved)
    if _has_state_dict(value):
        value.load_state_dict(saved)
        return value
    for kind, (_, put) in _STREAMS.items():
        if isinstance(value, kind):
            put(value, saved)
            return value
    if isinstance(value, list | tuple | deque):
        return _restore_sequence(value, saved)
    if isinstance(value, dict) and isinstance(saved, dict):
        items = {key: _restore(value[key], item) if key in value else item for key, item in saved.items()}
        value.clear()
        value.update(items)
        return value
    return value if _is_configuration(value) else saved


def _restore_sequence(value: Any, saved: Any) -> Any:
    old = [*value, *([None] * max(0, len(saved) - len(value)))]
    items = [_restore(before, item) for before, item in zip(old, saved)]  # noqa: B905  the saved length counts
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    value.clear()
    value.extend(items)
    return value


def _copy(value: Any) -> Any:
    """Return a copy that later updates in place do not reach."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()


def _restore_array(value: Any, saved: Any) -> Any:
    if type(saved) not in (torch.Tensor, np.ndarray) or saved.shape != value.shape or saved.dtype != value.dtype:
        return saved
    with torch.no_grad():
        value[...] = saved
    return value


def _set_numpy_generator(generator: np.random.Generator, state: Any) -> None:
    generator.bit_generator.state = state


_STREAMS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    np.random.Generator: (lambda generator: generator.bit_generator.state, _set_numpy_generator),
    np.random.RandomState: (lambda generator: generator.get_state(legacy=False), np.random.RandomState.set_state),
    random.Random: (random.Random.getstate, random.Random.setstate),
}
