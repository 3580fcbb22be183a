"""What is known of an environment by its name: whether it exists, what solves it. Knows gymnasium's registry, makes nothing."""

from __future__ import annotations

import difflib

import gymnasium

from parl_lite.errors import ParlError

from .atari import atari_game
from .minatar_envs import register_minatar

SHOWN = 5
"""Names that are close, in an error."""


def target_of(env: str) -> float | None:
    """Return the mean return at which the environment's makers call it solved, None where they do not say.

    Raises:
        ParlError: there is no environment of this name; the message has names that are close.
    """
    if atari_game(env) is not None:
        return None
    register_minatar(env)
    try:
        return gymnasium.spec(env).reward_threshold
    except (gymnasium.error.Error, ImportError) as error:
        if ":" in env:
            return None  # a function that makes one, or an error that making it will explain
        raise ParlError(f"there is no environment {env}: {_advice(env, str(error))}") from error


def _advice(env: str, reason: str) -> str:
    """Return what to try in place of a name that gymnasium does not know."""
    known = list(gymnasium.registry)
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(env.lower(), lower, n=SHOWN, cutoff=0.6)
    if not close:
        return f"{reason.rstrip('.')}. `gymnasium.pprint_registry()` lists those that are installed."
    return f"did you mean {', '.join(lower[name] for name in close)}?"
