"""Records one episode as a video. Needs moviepy, and an environment that can be rendered; says in words what is missing.

Most environments are rendered by gymnasium. Atari games are not rendered at all by the vector environment that steps them:
there, the video shows what the agent sees, the newest of the stacked frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import RecordVideo

from parl_lite.errors import ParlError

from .atari import atari_game
from .env_settings import EnvSettings, make_envs_from
from .envs import make_envs

FRAMES_PER_SECOND = 15
"""Agent steps of an Atari game in a second: 60 frames, of which four are one step."""


def filmed_envs(settings: EnvSettings, folder: Path) -> Callable[[], VectorEnv]:
    """Return what makes one environment that films its episodes into `folder`.

    Raises:
        ParlError: moviepy is not installed, or the environment cannot be rendered.
    """
    try:
        import moviepy  # noqa: F401
    except ImportError:
        raise ParlError("a video needs moviepy: pip install 'parl_lite[video]'") from None
    if atari_game(settings.env) is not None:
        return partial(_FilmedFrames, settings, folder)
    return partial(make_envs, partial(_rendered, settings.env, folder), 1)


def _rendered(env: str, folder: Path) -> gymnasium.Env[Any, Any]:
    try:
        made = gymnasium.make(env, render_mode="rgb_array", disable_env_checker=True)
    except Exception as error:
        raise ParlError(f"{env} cannot be rendered: {type(error).__name__}: {error}") from error
    return RecordVideo(made, str(folder), episode_trigger=lambda number: number == 0, name_prefix="evaluation")


class _FilmedFrames(VectorWrapper):
    """Keeps the frames of the first episode of a game, and writes them when it is closed."""

    def __init__(self, settings: EnvSettings, folder: Path) -> None:
        super().__init__(make_envs_from(settings, 1, evaluation=True))
        self._path = folder / "evaluation-episode-0.mp4"
        self._frames: list[Any] = []
        self._over = False

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if not self._over:
            self._frames.append(np.repeat(obs[0, -1][..., None], 3, axis=-1))  # (H, W, 3)
        self._over = self._over or bool(terminated[0] or truncated[0])
        return obs, reward, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        if self._frames:
            from moviepy.video.io.ImageSequenceClip import ImageSequenceClip

            self._path.parent.mkdir(parents=True, exist_ok=True)
            clip = ImageSequenceClip(self._frames, fps=FRAMES_PER_SECOND)
            clip.write_videofile(str(self._path), logger=None)
            self._frames = []
