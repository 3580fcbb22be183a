"""Where environments stand, so that a run goes on in the middle of an episode. Knows gymnasium's wrappers and MuJoCo's data.

Attributes are saved as `parl_lite.snapshot` saves them, of the vector environment, of the wrappers, and of the environment in
them: that is enough for classic control, toy text, MinAtar, MuJoCo and most that are written in Python. What keeps its state
elsewhere, as Box2D and Atari do, cannot be saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import SyncVectorEnv, VectorEnv

from parl_lite import snapshot

INNER = ("env", "envs", "_game")
"""Attributes that hold environments, or the games in them."""
FIXED = (
    *("spec", "_cached_spec", "metadata", "_metadata", "render_mode", "model", "data", "_settings"),
    *("observation_space", "action_space", "single_observation_space", "single_action_space"),
    *("_observation_space", "_action_space", "_cached_observation_space", "_cached_action_space"),
    *("mujoco_renderer", "screen", "surf", "clock", "window", "viewer"),
)
"""Attributes that do not change while an environment is stepped, or only by being looked at; `data` of MuJoCo is seen to."""


COMPUTED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "site_xpos"),
    *("subtree_com", "cinert", "cvel", "cfrc_ext", "qfrc_actuator"),
)
"""What gymnasium's environments read of what MuJoCo computed in the step before."""


class CannotSave(Exception):
    """An environment keeps something that is not known how to save."""


def capture_envs(envs: VectorEnv) -> dict[str, Any]:
    """Return where environments stand; raises CannotSave with the attribute that stands against it."""
    return _capture(envs)


def restore_envs(envs: VectorEnv, state: dict[str, Any]) -> None:
    """Put environments, made and reset as those were, back to where they stood."""
    _restore(envs, state)


def _capture(env: Any) -> dict[str, Any]:
    own, lost = snapshot.capture(vars(env), skip=(*FIXED, *INNER))
    if lost:
        raise CannotSave(f"{type(env).__name__}.{lost[0]}")
    state: dict[str, Any] = {"own": own, "inner": [_capture(inner) for inner in _inner(env)]}
    if _has_mujoco(env):
        state["mujoco"] = _mujoco_state(env)
    elif isinstance(env, VectorEnv) and not hasattr(env, "env") and not isinstance(env, SyncVectorEnv):
        raise CannotSave(f"{type(env).__name__}, whose games are in other processes or in C++")
    return state


def _restore(env: Any, state: dict[str, Any]) -> None:
    attributes = dict(vars(env))
    snapshot.restore(attributes, state["own"], skip=(*FIXED, *INNER))
    for name in state["own"]:
        if name in attributes:
            setattr(env, name, attributes[name])
    for inner, its in zip(_inner(env), state["inner"], strict=True):
        _restore(inner, its)
    if "mujoco" in state:
        _set_mujoco_state(env, state["mujoco"])


def _inner(env: Any) -> list[Any]:
    """Return the environments that this one holds."""
    found: list[Any] = []
    for name in INNER:
        value = vars(env).get(name)
        if value is not None:
            found += value if isinstance(value, list | tuple) else [value]
    return found


def _has_mujoco(env: Any) -> bool:
    return isinstance(env, Env) and type(vars(env).get("data")).__name__ == "MjData"


def _mujoco_state(env: Any) -> dict[str, Any]:
    """Return the numbers from which MuJoCo computes the next step, and those computed last, from which some rewards are."""
    import mujoco  # type: ignore[import-untyped]

    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, whole))
    mujoco.mj_getState(env.model, env.data, state, whole)
    return {"state": state, "computed": {name: getattr(env.data, name).copy() for name in COMPUTED}}


def _set_mujoco_state(env: Any, state: dict[str, Any]) -> None:
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, array in state["computed"].items():
        getattr(env.data, name)[...] = array
