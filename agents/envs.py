"""Makes vector environments, and says how they start their next episodes. Knows gymnasium only.

What a vector environment may say in the `info` of a step, beside what gymnasium defines, and collectors heed:

    raw_reward         (B,)        the reward as the game gave it, where `reward` is clipped or scaled to learn from
    life_lost          (B,) bool   to learn from, the step is a termination, though the game goes on
    discounted_return  (B,)        discounted sum of the rewards since the episode began, for `normalize.ReturnScaler`
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from parl_lite.errors import ParlError

from .mujoco_log import catch_mujoco_warnings
from .spaces import Spaces, spaces_from

EnvSource = str | Callable[[], gymnasium.Env[Any, Any]]

EXTRAS = {"Box2D": "box2d", "mujoco": "mujoco", "ale_py": "atari", "moviepy": "video"}
"""The extra of parl_lite that brings a package which an environment may miss."""


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


def make_envs(
    env: EnvSource,
    n_envs: int,
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    *,
    parallel: bool = False,
    max_episode_steps: int = 0,
) -> VectorEnv:
    """Return `n_envs` copies of an environment that step together.

    Args:
        env: a gymnasium id, such as "CartPole-v1" or "my_module:MyEnv-v0", a function that returns an environment, or
            the name of one, "my_module:make_env".
        n_envs: how many, B in the shapes of rollouts.
        autoreset_mode: how an environment starts its next episode.
        parallel: in processes of their own, which pays where one step takes more than about a millisecond; without,
            one after the other in this process.
        max_episode_steps: steps after which an episode is truncated; 0 leaves that to the environment.

    Raises:
        ParlError: an environment could not be made; it names which, and the cause.
    """
    makers = [partial(_make_env, env, index, max_episode_steps) for index in range(n_envs)]
    if parallel:  # not by fork: this process may have threads that hold locks
        return AsyncVectorEnv(makers, copy=False, autoreset_mode=autoreset_mode, context="forkserver")
    return SyncVectorEnv(makers, copy=False, autoreset_mode=autoreset_mode)


def spaces_of(envs: VectorEnv) -> Spaces:
    """Return what a network must know of the environments; raises ParlError for spaces that `spaces.py` does not list."""
    return spaces_from(envs.single_observation_space, envs.single_action_space)


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


def _make_env(env: EnvSource, index: int, max_episode_steps: int) -> gymnasium.Env[Any, Any]:
    source = env.func if isinstance(env, partial) else env
    name = f"environment {index} ({source if isinstance(source, str) else getattr(source, '__name__', source)})"
    try:
        made = _made(env, max_episode_steps)
    except Exception as error:
        raise ParlError(f"{name} could not be made: {_reason(error)}") from error
    return LocatedEnv(made, name)


def _made(env: EnvSource, max_episode_steps: int) -> gymnasium.Env[Any, Any]:
    maker = _named_function(env) if isinstance(env, str) else env
    if maker is None:
        catch_mujoco_warnings(str(env))
        return gymnasium.make(str(env), disable_env_checker=True, max_episode_steps=max_episode_steps or None)
    return TimeLimit(maker(), max_episode_steps) if max_episode_steps else maker()


def _named_function(env: str) -> Callable[[], gymnasium.Env[Any, Any]] | None:
    """Return the function that "module:function" names; None where it is a gymnasium id."""
    module, _, name = env.partition(":")
    function = getattr(importlib.import_module(module), name, None) if name else None
    return function if callable(function) else None


def _reason(error: Exception) -> str:
    """Return the error in words, with what to install where something is missing."""
    missing = next((package for package in EXTRAS if package.lower() in str(error).lower()), None)
    if missing and isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
        return f"{missing} is not installed: pip install 'parl_lite[{EXTRAS[missing]}]'"
    return f"{type(error).__name__}: {error}"
