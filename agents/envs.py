"""Makes vector environments, and says how they start their next episodes. Knows gymnasium only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from parl_lite.errors import ParlError

EnvSource = str | Callable[[], gymnasium.Env[Any, Any]]


class Spaces(NamedTuple):
    """What a network needs to know of an environment with array observations and discrete actions."""

    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]
    n_actions: int
    first_action: int


class LocatedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says of an exception which environment of a vector it came from, and in which method."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        super().__init__(env)
        self._located_name = name

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except Exception as error:
            raise self._located("step()", error) from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        try:
            return self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise self._located("reset()", error) from error

    def _located(self, method: str, error: Exception) -> ParlError:
        return ParlError(f"{self._located_name} raised {type(error).__name__} in {method}: {error}")


def make_envs(env: EnvSource, n_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> VectorEnv:
    """Return `n_envs` copies of an environment that step together in this process.

    Args:
        env: a gymnasium id, such as "CartPole-v1" or "my_module:MyEnv-v0", or a function that returns an environment.
        n_envs: how many, B in the shapes of rollouts.
        autoreset_mode: how an environment starts its next episode.

    Raises:
        ParlError: an environment could not be made; it names which, and the cause.
    """
    makers = [partial(_make_env, env, index) for index in range(n_envs)]
    return SyncVectorEnv(makers, copy=False, autoreset_mode=autoreset_mode)


def spaces_of(envs: VectorEnv) -> Spaces:
    """Return shapes and dtypes; raises ParlError unless observations are arrays (Box) and actions are discrete."""
    obs, action = envs.single_observation_space, envs.single_action_space
    if not isinstance(obs, Box):
        raise ParlError(f"observations must be a Box, these are {obs}: flatten them with a gymnasium wrapper")
    if not isinstance(action, Discrete):
        raise ParlError(f"actions must be Discrete, these are {action}: choose an algorithm for them, or a wrapper")
    return Spaces(obs.shape, obs.dtype, int(action.n), int(action.start))


def autoreset_mode_of(envs: VectorEnv) -> AutoresetMode:
    """Return what the environments say of themselves; raises ParlError where they say nothing that gymnasium knows.

    A guess would put the first observation of an episode where the last of the one before belongs.
    """
    mode = envs.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(str(each) for each in AutoresetMode)
        raise ParlError(f"metadata['autoreset_mode'] of {envs} is {mode!r}: set it to one of {known}") from None


def _make_env(env: EnvSource, index: int) -> gymnasium.Env[Any, Any]:
    name = f"environment {index} ({env if isinstance(env, str) else getattr(env, '__name__', env)})"
    try:
        made = gymnasium.make(env, disable_env_checker=True) if isinstance(env, str) else env()
    except Exception as error:
        raise ParlError(f"{name} could not be made: {type(error).__name__}: {error}") from error
    return LocatedEnv(made, name)
