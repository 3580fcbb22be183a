"""What observations and actions look like to rollouts and networks. Knows gymnasium's spaces; no environments, no torch.

space           in a rollout                          to a network
Box             its shape; float64 becomes float32    its numbers; bytes over 255
Discrete        () integer                            one-hot
MultiDiscrete   its shape, integers                   a one-hot for each
MultiBinary     its shape, int8                       its numbers
Dict            a dict of these                       all of these together
Tuple           a dict "0", "1", ... of these         all of these together

actions         in a rollout                          to the environment
Discrete        () int64 from 0 on                    plus the space's start
MultiDiscrete   (n,) int64 from 0 on                  plus the starts, in the space's shape
MultiBinary     (n,) int8                             in the space's shape
Box             (n,) float32 as the policy drew it    clipped into the bounds, or squashed into them by tanh,
                                                      or stretched to them from [-1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from parl_lite.errors import ParlError

from .trees import Array, Tree, map_tree


@dataclass(frozen=True)
class ObsSpec:
    """One array of an observation.

    Attributes:
        shape: of one observation.
        dtype: as it stands in a rollout.
        sizes: numbers of categories, one for each entry of the flattened array; empty where it holds quantities.
        starts: the first category of each.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sizes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def n_features(self) -> int:
        """How many numbers a network gets from it when it is flattened."""
        return sum(self.sizes) if self.sizes else math.prod(self.shape)


ObsLayout = Any
"""An ObsSpec, or a dict of ObsLayouts by name."""


@dataclass(frozen=True)
class DiscreteActions:
    """A choice among `n`, which the environment counts from `start`."""

    n: int
    start: int = 0
    kind: ClassVar[str] = "discrete"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)
    shape: ClassVar[tuple[int, ...]] = ()

    @property
    def n_params(self) -> int:
        """Numbers that describe a distribution over these actions: logits."""
        return self.n

    def to_env(self, action: Array) -> Array:
        """Return (B,) as the environment counts."""
        counted: Array = action + self.start
        return counted


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Choices made together, the i-th among `sizes[i]`."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    env_shape: tuple[int, ...]
    kind: ClassVar[str] = "multi_discrete"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout."""
        return (len(self.sizes),)

    @property
    def n_params(self) -> int:
        """Numbers that describe a distribution over these actions: the logits of all choices, one after the other."""
        return sum(self.sizes)

    def to_env(self, action: Array) -> Array:
        """Return (B, *env_shape) as the environment counts, for actions (B, n)."""
        counted: Array = action + np.asarray(self.starts)
        return counted.reshape(-1, *self.env_shape)


@dataclass(frozen=True)
class BinaryActions:
    """`n` switches."""

    n: int
    env_shape: tuple[int, ...]
    kind: ClassVar[str] = "multi_binary"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int8)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout."""
        return (self.n,)

    @property
    def n_params(self) -> int:
        """Numbers that describe a distribution over these actions: the logit of each switch."""
        return self.n

    def to_env(self, action: Array) -> Array:
        """Return (B, *env_shape) for actions (B, n)."""
        return action.reshape(-1, *self.env_shape)


@dataclass(frozen=True)
class BoxActions:
    """A vector of numbers between bounds, which may be infinite."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    env_shape: tuple[int, ...]
    env_dtype: np.dtype[Any]
    kind: ClassVar[str] = "box"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout."""
        return (len(self.low),)

    @property
    def n_params(self) -> int:
        """Numbers that describe a distribution over these actions: means and log standard deviations."""
        return 2 * len(self.low)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Low and high (n,) float64."""
        return np.array(self.low), np.array(self.high)

    def to_env(self, action: Array) -> Array:
        """Return actions (B, n) clipped into the bounds, (B, *env_shape)."""
        return np.clip(action, *self.bounds).astype(self.env_dtype).reshape(-1, *self.env_shape)

    def squashed_to_env(self, action: Array) -> Array:
        """Return actions (B, n) squashed into the bounds by tanh, (B, *env_shape); raises ParlError without bounds."""
        return self.scaled_to_env(np.tanh(action))

    def scaled_to_env(self, action: Array) -> Array:
        """Return actions (B, n) in [-1, 1] stretched to the bounds, (B, *env_shape); raises ParlError without bounds."""
        low, high = self.bounds
        if not np.isfinite([low, high]).all():
            raise ParlError(f"actions between {self.low} and {self.high} have no bounds to be scaled to: choose clipping")
        return self.to_env(low + (action + 1) * (high - low) / 2)


ActionKind = DiscreteActions | MultiDiscreteActions | BinaryActions | BoxActions


class Spaces(NamedTuple):
    """What a network needs to know of an environment."""

    obs: ObsLayout
    action: ActionKind

    @property
    def obs_spec(self) -> ObsSpec:
        """The observation as a single array; raises ParlError where it is a Dict or a Tuple."""
        if not isinstance(self.obs, ObsSpec):
            raise ParlError(f"observations must be one array here, these are a dict of {list(self.obs)}: flatten them")
        return self.obs

    @property
    def n_actions(self) -> int:
        """How many actions there are to choose from; raises ParlError unless they are Discrete."""
        if not isinstance(self.action, DiscreteActions):
            raise ParlError(f"actions must be discrete here, these are {self.action.kind}: choose an algorithm for them")
        return self.action.n


def spaces_from(obs: Space[Any], action: Space[Any]) -> Spaces:
    """Return the layout of observations and the kind of actions; raises ParlError for spaces that are not listed above."""
    return Spaces(obs_layout(obs), action_kind(action))


def obs_layout(space: Space[Any]) -> ObsLayout:
    """Return the layout of one observation, a dict where the space is a Dict or a Tuple."""
    if isinstance(space, Dict):
        return {name: obs_layout(child) for name, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return {str(index): obs_layout(child) for index, child in enumerate(space.spaces)}
    if isinstance(space, Discrete):
        return ObsSpec((), space.dtype, (int(space.n),), (int(space.start),))
    if isinstance(space, MultiDiscrete):
        return ObsSpec(space.shape, space.dtype, _integers(space.nvec), _integers(space.start))
    if isinstance(space, Box | MultiBinary):
        narrow = np.dtype(np.float32) if space.dtype == np.float64 else space.dtype
        return ObsSpec(space.shape, narrow)
    known = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
    raise ParlError(f"observations {space} are not supported, but {known} are: write a gymnasium wrapper that gives one")


def action_kind(space: Space[Any]) -> ActionKind:
    """Return the kind of actions of a single environment."""
    if isinstance(space, Discrete):
        return DiscreteActions(int(space.n), int(space.start))
    if isinstance(space, MultiDiscrete):
        return MultiDiscreteActions(_integers(space.nvec), _integers(space.start), space.shape)
    if isinstance(space, MultiBinary):
        return BinaryActions(math.prod(space.shape), space.shape)
    if isinstance(space, Box):
        low, high = (tuple(bound.ravel().tolist()) for bound in (space.low, space.high))
        return BoxActions(low, high, space.shape, space.dtype)
    known = "Discrete, MultiDiscrete, MultiBinary and Box"
    raise ParlError(f"actions {space} are not supported, but {known} are: write a gymnasium wrapper that takes one")


def env_actions(kind: ActionKind, *, squash: bool = False, scale: bool = False) -> Callable[[Array], Array]:
    """Return the function that turns actions of a rollout, (B, ...), into those of the environments."""
    if isinstance(kind, BoxActions) and (squash or scale):
        return kind.squashed_to_env if squash else kind.scaled_to_env
    return kind.to_env


def empty_obs(layout: ObsLayout, *leading: int) -> Tree:
    """Return uninitialised arrays (*leading, *shape) for observations."""
    return map_tree(lambda spec: np.empty((*leading, *spec.shape), dtype=spec.dtype), layout)


def _integers(numbers: Array) -> tuple[int, ...]:
    return tuple(int(number) for number in numbers.ravel())
