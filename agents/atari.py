"""Atari games as ale-py steps them, many at once, with the preprocessing of Mnih et al. 2015. Knows ale-py and gymnasium.

ale-py does in C++ what is needed for each frame: it repeats actions, takes the maximum of the last two raw frames, makes
them grey and small, stacks them, presses FIRE where a game waits for it, and begins with up to `noop_max` no-ops. Two
things it would do otherwise than the papers, so they are done here:

    lives     ale-py's episodic_life begins a new game after each life lost. Here the game goes on, `life_lost` in the
              info of a step tells of the loss, and episodes and their returns are whole games.
    rewards   ale-py's clipping loses the score. Its rewards are left raw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from parl_lite.errors import ParlError

from .trees import Array

if TYPE_CHECKING:
    from .env_settings import EnvSettings

MAX_FRAMES = 108_000
"""A game is truncated after so many frames, half an hour of play, as in the papers."""


def atari_game(env: str) -> str | None:
    """Return the game's name, such as "pong", for an id such as "ALE/Pong-v5" or "PongNoFrameskip-v4"; None for others.

    Raises ParlError where ale-py is needed and not installed.
    """
    named = env.startswith("ALE/")
    if not named and (":" in env or "/" in env or (env in gymnasium.registry and not _is_game(env))):
        return None
    try:
        import ale_py
    except ImportError:
        if named:
            raise ParlError(f"{env} needs ale-py: pip install 'parl_lite[atari]'") from None
        return None
    gymnasium.register_envs(ale_py)
    if named and not _is_game(env):
        known = sorted(name for name in gymnasium.registry if name.startswith("ALE/") and name.endswith("-v5"))
        raise ParlError(f"there is no game {env}; there are {', '.join(known)}")
    return str(gymnasium.spec(env).kwargs["game"]) if _is_game(env) else None


def make_atari_envs(game: str, settings: EnvSettings, n_envs: int, *, life_loss: bool) -> VectorEnv:
    """Return games with observations (frame_stack, frame_size, frame_size) uint8, raw rewards and next-step autoreset.

    Args:
        game: name of a ROM, such as "pong".
        settings: the fields whose lines begin with "Atari:" are read. After a lost life the agent has to press FIRE.
        n_envs: how many games, B.
        life_loss: tell of lost lives by `life_lost`.
    """
    envs = _vector_class()(
        game,
        n_envs,
        num_threads=min(settings.env_threads, n_envs),
        max_num_frames_per_episode=settings.max_episode_steps * settings.frame_skip or MAX_FRAMES,
        repeat_action_probability=settings.sticky,
        full_action_space=settings.full_actions,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=settings.frame_size,
        img_width=settings.frame_size,
        stack_num=settings.frame_stack,
        frameskip=settings.frame_skip,
        noop_max=settings.noop_max,
        reward_clipping=False,
        use_fire_reset=settings.fire_reset,
    )
    envs = SeededGames(envs)
    return LostLives(envs) if life_loss else envs


class SeededGames(VectorWrapper):
    """Takes a list of seeds of any size, as gymnasium's vector environments do."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        if isinstance(seed, list | tuple):
            seed = np.array(seed, dtype=np.int64) & 0x7FFFFFFF
        return self.env.reset(seed=seed, options=options)


class LostLives(VectorWrapper):
    """Says in `info["life_lost"]` where a step cost a life but not the game."""

    _lives: Array

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return obs, info

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        info["life_lost"] = (info["lives"] < self._lives) & ~terminated & ~truncated
        self._lives = info["lives"]
        return obs, reward, terminated, truncated, info


def _is_game(env: str) -> bool:
    spec = gymnasium.registry.get(env)
    return spec is not None and str(spec.entry_point).startswith("ale_py")


def _vector_class() -> Any:
    from ale_py.vector_env import AtariVectorEnv

    class Games(AtariVectorEnv):
        """With a metadata dict of its own: ale-py writes into the one that all vector environments share."""

        metadata: dict[str, Any] = {}  # noqa: RUF012

    return Games
