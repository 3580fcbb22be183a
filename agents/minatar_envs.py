"""The MinAtar games (Young and Tian 2019) as gymnasium environments, where the package is installed. Knows gymnasium.

The package has such a class itself, but one that warns of plotting libraries which training does not need.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from parl_lite.errors import ParlError

GAMES = {
    f"MinAtar/{name.title().replace('_', '')}-v{version}": (name, version == 1)
    for name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
    for version in (0, 1)
}
"""By id: the game, and whether only the actions that it uses are offered (v1) or all six (v0)."""


class MinAtarEnv(gymnasium.Env[Any, Any]):
    """A game on a grid; observations (10, 10, n) bool, a layer for each kind of thing."""

    def __init__(self, game: str, minimal_actions: bool, sticky: float = 0.1) -> None:
        self._game = _environment_class()(game, sticky_action_prob=sticky)
        self._actions = self._game.minimal_action_set() if minimal_actions else list(range(self._game.num_actions()))
        self.action_space = Discrete(len(self._actions))
        self.observation_space = Box(0, 1, self._game.state_shape(), np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed)
        self._game.reset()
        return self._game.state(), {}

    def step(self, action: Any) -> Any:
        reward, terminated = self._game.act(self._actions[int(action)])
        return self._game.state(), float(reward), bool(terminated), False, {}


def register_minatar(env: str) -> None:
    """Make "MinAtar/Breakout-v0" and the like known to gymnasium; does nothing for other ids, or if they are known.

    Raises ParlError for a game that there is not, or where MinAtar is not installed.
    """
    if not env.startswith("MinAtar/") or env in gymnasium.registry:
        return
    if env not in GAMES:
        raise ParlError(f"there is no game {env}; there are {', '.join(GAMES)}")
    _environment_class()
    game, minimal = GAMES[env]
    gymnasium.register(env, partial(MinAtarEnv, game, minimal))


def _environment_class() -> Any:
    """Import MinAtar without its warning, which would also set up the logging of this process."""
    root, quiet = logging.getLogger(), logging.NullHandler()
    root.addHandler(quiet)
    try:
        from minatar import Environment
    except ImportError:
        raise ParlError("the MinAtar games need MinAtar: pip install --no-deps MinAtar") from None
    finally:
        root.removeHandler(quiet)
    return Environment
