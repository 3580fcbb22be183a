"""Networks of Agent57: values of rewards and of novelty apart, and what says what is new. Knows Model and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from parl_lite.model import Model

from .novelty import NoveltyModel
from .q_networks import RecurrentQNetwork, State


class Values(NamedTuple):
    """Q values (..., A) of rewards and of novelty."""

    extrinsic: Tensor
    intrinsic: Tensor


class SplitQNetwork(Model):
    """Two recurrent networks, one for the values of rewards and one for those of novelty."""

    def __init__(self, make_network: Callable[[], RecurrentQNetwork]) -> None:
        super().__init__()
        self.extrinsic = make_network()
        self.intrinsic = make_network()

    def initial_state(self, n: int) -> State:
        """Return the state of `n` environments at the start of an episode."""
        return _joined(self.extrinsic.initial_state(n), self.intrinsic.initial_state(n))

    def unroll(self, obs: Any, context: Tensor, first: Tensor, state: State) -> tuple[Values, State]:
        """Return the values (T, B, A) of both and the state after the last row; arguments as in `RecurrentQNetwork`."""
        extrinsic, after = self.extrinsic.unroll(obs, context, first, _part(state, "extrinsic"))
        intrinsic, after_intrinsic = self.intrinsic.unroll(obs, context, first, _part(state, "intrinsic"))
        return Values(extrinsic, intrinsic), _joined(after, after_intrinsic)


class Agent57Network(Model):
    """All that actors need: `q` chooses actions, `novelty` rewards them.

    Args:
        q: values.
        novelty: what is new.
        n_actions: A.
    """

    def __init__(self, q: SplitQNetwork, novelty: NoveltyModel, n_actions: int) -> None:
        super().__init__()
        self.q = q
        self.novelty = novelty
        self.n_actions = n_actions


def _joined(extrinsic: State, intrinsic: State) -> State:
    return {
        f"{kind}_{name}": part
        for kind, state in zip(Values._fields, (extrinsic, intrinsic), strict=True)
        for name, part in state.items()
    }


def _part(state: State, kind: str) -> State:
    return {name: state[f"{kind}_{name}"] for name in ("hidden", "cell")}
