"""Agent: an algorithm behind a border of numpy, with save and restore. Knows nothing of clusters and environments."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from parl_lite import checkpoint, snapshot
from parl_lite.errors import ParlError, SerializationError

_NOT_STATE = ("alg", "training")  # the algorithm has a place of its own; the mode belongs to the program


class Agent:
    """What an actor or a learner talks to: numpy arrays go in and come out, `alg` does the work.

    `learn`, `predict` and `sample` pass their arguments to the algorithm as tensors on the model's device and return
    its results as numpy; override them for anything else. Calling `super().__init__(algorithm)` is not needed where
    `alg` is set.

    Attributes:
        alg: the algorithm.
        training: whether the agent trains (`train()`, the default) or is evaluated (`eval()`).
    """

    alg: Any
    training: bool = True

    def __init__(self, algorithm: Any) -> None:
        self.alg = algorithm

    def learn(self, *args: Any, **kwargs: Any) -> Any:
        """Return `alg.learn` of a batch."""
        return self._call(self._algorithm().learn, args, kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return `alg.predict` of the observations, without gradients."""
        with torch.no_grad():
            return self._call(self._algorithm().predict, args, kwargs)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return `alg.sample` of the observations, without gradients."""
        with torch.no_grad():
            return self._call(self._algorithm().sample, args, kwargs)

    def get_weights(self) -> dict[str, Any]:
        """Return copies of the model's weights as numpy arrays by name."""
        weights: dict[str, Any] = self._algorithm().get_weights()
        return weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copy `weights`, from `get_weights` of an agent of the same kind, into the model."""
        self._algorithm().set_weights(weights)

    def train(self) -> None:
        """Put the agent and its model into training mode (dropout, batch normalisation)."""
        self._set_mode(True)

    def eval(self) -> None:
        """Put the agent and its model into evaluation mode."""
        self._set_mode(False)

    def save(self, path: str | os.PathLike[str], model: Any = None) -> None:
        """Write a checkpoint to `path`, atomically.

        Without `model` it holds all that is needed to go on bit by bit: the algorithm's state
        (`Algorithm.state_dict`), the agent's own attributes, and the random streams of `random`, `numpy` and
        `torch`. Warns by name about what it cannot hold. With `model` it holds the weights of that model alone.
        """
        if model is not None:
            checkpoint.save(path, {"kind": "model", "model": model.state_dict()})
            return
        own, lost = snapshot.capture(vars(self), skip=_NOT_STATE)
        if lost:
            warnings.warn(
                f"the checkpoint of {type(self).__name__} lacks {', '.join(lost)}: "
                f"give their classes state_dict() and load_state_dict()",
                stacklevel=2,
            )
        state = {
            "kind": "agent",
            "algorithm": self._algorithm().state_dict(),
            "agent": own,
            "randomness": snapshot.capture_randomness(),
        }
        checkpoint.save(path, state)

    def restore(self, path: str | os.PathLike[str], model: Any = None, map_location: Any = None) -> None:
        """Go on from a checkpoint that `save` wrote.

        A checkpoint of a whole agent also sets the random streams of this process: actors that restore one must seed
        theirs anew, or all draw the same. A checkpoint of a model alone goes into `model`, or into `alg.model` with
        a warning.

        Args:
            path: the file.
            model: the model to restore, from a file written with `save(path, model)`.
            map_location: where tensors land while reading (as in `torch.load`); the CPU by default. They end where
                the model is.

        Raises:
            SerializationError: the file is truncated, foreign, or holds a whole agent though `model` was given.
        """
        state = checkpoint.load(path, map_location="cpu" if map_location is None else map_location)
        kind = state.get("kind") if isinstance(state, dict) else None
        if kind == "model":
            self._restore_model(path, state["model"], model)
        elif kind == "agent" and model is None:
            self._restore_agent(state)
        elif kind == "agent":
            raise SerializationError(f"{path} holds a whole agent: restore it without model=")
        else:
            raise SerializationError(f"{path} is a checkpoint, but not of an agent: read it with parl_lite.checkpoint.load")

    def _restore_model(self, path: str | os.PathLike[str], state: Any, model: Any) -> None:
        if model is None:
            model = self._algorithm().model
            warnings.warn(f"{path} holds a model only: optimisers, counters and random streams are not restored", stacklevel=3)
        model.load_state_dict(state)

    def _restore_agent(self, state: dict[str, Any]) -> None:
        self._algorithm().load_state_dict(state["algorithm"])
        amiss = snapshot.restore(vars(self), state["agent"], skip=_NOT_STATE)
        amiss += snapshot.restore_randomness(state["randomness"])
        if amiss:
            warnings.warn(f"{type(self).__name__} was not restored in full: {'; '.join(amiss)}", stacklevel=3)

    def _algorithm(self) -> Any:
        if getattr(self, "alg", None) is None:
            raise ParlError(f"{type(self).__name__} has no algorithm: call super().__init__(algorithm), or set self.alg")
        return self.alg

    def _set_mode(self, training: bool) -> None:
        model = getattr(self._algorithm(), "model", None)
        if isinstance(model, torch.nn.Module):
            model.train(training)
        self.training = training

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = _device(getattr(self.alg, "model", None))
        return to_numpy(function(*to_tensors(args, device), **to_tensors(kwargs, device)))


def to_tensors(value: Any, device: torch.device | str = "cpu") -> Any:
    """Return `value` with tensors on `device` for the numpy arrays in it, however deep in dict, list and tuple.

    float64 becomes float32; numpy and Python scalars stay as they are. Arrays are shared where that is possible, not
    copied.
    """
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(value if value.flags.writeable else value.copy())
        return tensor.to(device, torch.float32 if tensor.dtype == torch.float64 else tensor.dtype)
    return _map_leaves(lambda leaf: to_tensors(leaf, device), value)


def to_numpy(value: Any) -> Any:
    """Return `value` with numpy arrays for the tensors in it, however deep in dict, list and tuple.

    A tensor of shape () becomes a Python number.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy() if value.ndim else value.item()
    return _map_leaves(to_numpy, value)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(function, value))
    if isinstance(value, list | tuple):
        return type(value)(map(function, value))
    return value


def _device(model: Any) -> torch.device | str:
    """Return where the first parameter of the model lives; the CPU where there is none."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), "cpu")
