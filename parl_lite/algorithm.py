"""Algorithm: the update rule of a model. Knows Model and torch; nothing of environments, clusters, files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from parl_lite import snapshot
from parl_lite.errors import ParlError


class Algorithm:
    """How a model learns: make optimisers and target networks in `__init__`, and write `learn`, `predict`, `sample`.

    Calling `super().__init__()` is not needed; an attribute `model` is, for `get_weights` and `set_weights`. Tensors
    go in and come out; numpy is the business of `Agent`.

    Attributes:
        model: the network whose weights `get_weights` returns, usually a `parl_lite.Model`.
    """

    model: Any

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def learn(self, *args: Any, **kwargs: Any) -> Any:
        """Update the model from a batch and return what is worth logging."""
        raise NotImplementedError(f"{type(self).__name__} does not define learn()")

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the best actions, or values, for a batch of observations."""
        raise NotImplementedError(f"{type(self).__name__} does not define predict()")

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return actions that explore, for a batch of observations."""
        raise NotImplementedError(f"{type(self).__name__} does not define sample()")

    def get_weights(self) -> dict[str, Any]:
        """Return copies of the model's weights as numpy arrays by name."""
        weights: dict[str, Any] = self._model().get_weights()
        return weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copy `weights`, from `get_weights` of the same algorithm, into the model."""
        self._model().set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit by bit; `parl_lite.snapshot` says which attributes that is.

        Override both this and `load_state_dict` to choose yourself. Warns by name about attributes that are left out.
        """
        state, lost = snapshot.capture(vars(self))
        if lost:
            warnings.warn(
                f"the state of {type(self).__name__} lacks {', '.join(lost)}: give their classes state_dict() and "
                f"load_state_dict(), or override both methods here",
                stacklevel=2,
            )
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned. Warns by name about what only one side has."""
        amiss = snapshot.restore(vars(self), state)
        if amiss:
            warnings.warn(f"{type(self).__name__} was not restored in full: {'; '.join(amiss)}", stacklevel=2)

    def _model(self) -> Any:
        if getattr(self, "model", None) is None:
            raise ParlError(f"{type(self).__name__} has no model: set self.model, or override get_weights and set_weights")
        return self.model
