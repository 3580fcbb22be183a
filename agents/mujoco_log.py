"""What MuJoCo warns of goes to the log of this library, instead of a file MUJOCO_LOG.TXT in whatever folder it runs in."""

from __future__ import annotations

import logging

import gymnasium

logger = logging.getLogger("parl_lite.agents")

_told: set[str] = set()


def catch_mujoco_warnings(env: str) -> None:
    """Catch MuJoCo's warnings in this process if gymnasium's id is one of its environments and nobody else does."""
    spec = gymnasium.registry.get(env)
    if spec is None or not str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        return
    try:
        import mujoco  # type: ignore[import-untyped]
    except ImportError:
        return  # making the environment will say so
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(text: str) -> None:
    """Log a warning once; that gymnasium's own models use old attributes is nothing that a user can change."""
    if text not in _told:
        _told.add(text)
        logger.log(logging.DEBUG if "deprecated" in text else logging.WARNING, "MuJoCo: %s", text)
