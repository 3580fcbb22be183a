"""Which environments a run steps and how they are preprocessed. Knows `envs`, `atari` and `minatar_envs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from parl_lite.errors import ParlError

from .atari import atari_game, make_atari_envs
from .bounds import Count, CountOrZero, Fraction, Positive
from .envs import make_envs
from .minatar_envs import register_minatar
from .trees import Array

Vector = Literal["auto", "sync", "async", "ale"]


@dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """The environment and its preprocessing. What begins with "Atari:" is read for Atari games only."""

    env: str = "CartPole-v1"
    """Gymnasium id of the environment, or module:function that returns one."""
    envs_per_actor: Count = 16
    """Environments that an actor steps together."""
    vector: Vector = "auto"
    """How they step: sync one after the other, async in processes of their own, ale (Atari) in C++; auto: ale or sync."""
    max_episode_steps: CountOrZero = 0
    """Steps after which an episode is truncated; 0: the environment's own limit (Atari: 108,000 frames)."""
    gamma: Fraction = 0.99
    """Discount of a reward one step later."""
    clip_reward: bool = False
    """Learn from rewards clipped to -1 and 1; logged returns are raw."""
    reward_scale: Positive = 1.0
    """Learn from rewards times this, after clipping; logged returns are raw."""
    normalize_reward: bool = False
    """Learn from rewards divided by the running standard deviation of their discounted sums."""
    frame_size: Count = 84
    """Atari: height and width of a frame in pixels, such as 84 or 42."""
    frame_stack: Count = 4
    """Atari: frames in one observation."""
    frame_skip: Count = 4
    """Atari: frames for which an action is repeated."""
    sticky: Fraction = 0.0
    """Atari: probability that a frame repeats the action before, instead of the one chosen."""
    noop_max: CountOrZero = 30
    """Atari: a game begins with a random number of no-ops up to this."""
    fire_reset: bool = True
    """Atari: press FIRE to begin a game that waits for it."""
    full_actions: bool = False
    """Atari: all 18 actions of the console instead of those that the game uses."""
    life_loss: bool = False
    """Atari: learn from a lost life as from the end of the game; returns are of whole games, evaluation never does it."""
    env_threads: Count = 1
    """Atari: threads that step the games of one actor."""


def make_envs_from(settings: EnvSettings, n_envs: int, *, evaluation: bool = False) -> VectorEnv:
    """Return `n_envs` environments with next-step autoreset, which collectors and policies understand.

    Args:
        settings: what to make.
        n_envs: how many, B.
        evaluation: whole games with raw rewards, whatever the settings say of lives and rewards.

    Raises:
        ParlError: it could not be made, with the cause; a package is missing, with the command that installs it.
    """
    envs = _make(settings, n_envs, life_loss=settings.life_loss and not evaluation)
    shaped = settings.clip_reward or settings.normalize_reward or settings.reward_scale != 1.0
    return LearningRewards(envs, settings) if shaped and not evaluation else envs


class LearningRewards(VectorWrapper):
    """Gives the reward to learn from, clipped and scaled, and in `info` the raw one.

    With `normalize_reward` also the discounted sum of rewards since the episode began, whose variance the learner
    follows. It does not know of autoreset: a sum begins anew with the row after the last of an episode.
    """

    def __init__(self, envs: VectorEnv, settings: EnvSettings) -> None:
        super().__init__(envs)
        self._settings = settings
        self._sums = np.zeros(envs.num_envs)

    def step(self, actions: Any) -> Any:
        obs, raw, terminated, truncated, info = self.env.step(actions)
        reward = self._scaled(raw)
        info["raw_reward"] = raw
        if self._settings.normalize_reward:
            self._sums = self._settings.gamma * self._sums + reward
            info["discounted_return"] = self._sums
            self._sums = self._sums * ~(terminated | truncated)
        return obs, reward, terminated, truncated, info

    def _scaled(self, raw: Array) -> Array:
        clipped = np.clip(raw, -1, 1) if self._settings.clip_reward else raw
        return clipped * self._settings.reward_scale


def _make(settings: EnvSettings, n_envs: int, *, life_loss: bool) -> VectorEnv:
    env, vector = settings.env, settings.vector
    if vector not in get_args(Vector):
        raise ParlError(f"vector is {vector!r}; it can be {', '.join(get_args(Vector))}")
    game = atari_game(env)
    if game is not None and vector in ("sync", "async"):
        raise ParlError(f"{env} is stepped by ale-py, which does the preprocessing: vector must be auto or ale, not {vector}")
    if game is None and vector == "ale":
        raise ParlError(f"{env} is no Atari game, so vector must be auto, sync or async, not ale")
    if game is not None:
        return make_atari_envs(game, settings, n_envs, life_loss=life_loss)
    register_minatar(env)
    return make_envs(env, n_envs, parallel=vector == "async", max_episode_steps=settings.max_episode_steps)
