"""Reads a rollout for a buffer, and says what is wrong with one. Knows the columns of `collector.py`, and no buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl_lite.columns import join_path
from parl_lite.errors import ParlError

from .stacks import Stacks, unpacked

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Steps:
    """A rollout of T steps of B environments, checked."""

    obs: dict[str, Any]
    """(T + 1, B, *shape) by path: "obs", or "obs/image", ...: arrays, or Stacks that came packed"""
    final_obs: dict[str, Array]
    """(K, *shape) by the same paths"""
    final_at: tuple[Array, Array]
    """(t (K,), b (K,)): the steps after which final_obs came, in their order"""
    columns: dict[str, Array]
    """(T, B, ...) by name: action, reward float32, terminated, truncated, step (bool: it is one), and those asked for"""
    first: Array
    """(T + 1, B) bool: the row begins an episode"""

    @property
    def shape(self) -> tuple[int, int]:
        """T and B."""
        n_steps, n_envs = self.columns["reward"].shape
        return n_steps, n_envs


def read_rollout(rollout: Mapping[str, Any], extra: Sequence[str] = ()) -> Steps:
    """Return the parts of a rollout that a buffer keeps.

    Args:
        rollout: as `collector.py` describes it; `valid` and `first` may be missing.
        extra: names of further columns (T, B, ...) to keep, or () as `version`, which all steps then share.

    Raises:
        ParlError: a column is missing, has a wrong shape or dtype, or holds NaN.
    """
    reward = np.asarray(_column(rollout, "reward"))
    if reward.ndim != 2 or not reward.size:
        raise ParlError(f"column 'reward' has shape {reward.shape}: a rollout has at least one step, (T, B)")
    lead = reward.shape
    columns = {"action": np.asarray(_column(rollout, "action")), "reward": reward.astype(np.float32, copy=False)}
    columns |= {name: _flags(_column(rollout, name), name) for name in ("terminated", "truncated")}
    columns["step"] = _flags(rollout["valid"], "valid") if "valid" in rollout else np.ones(lead, dtype=bool)
    for name in extra:
        column = np.asarray(_column(rollout, name))
        columns[name] = column if column.ndim else np.broadcast_to(column, lead)
    obs = dict(flatten("obs", _column(rollout, "obs")))
    for name, column in {**columns, **obs}.items():
        _check(column, name, (lead[0] + (name in obs), lead[1]))
    final_obs, final_at = _finals(rollout, columns, obs)
    return Steps(obs, final_obs, final_at, columns, _first(rollout, columns))


def flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, array or Stacks) of an array, a packed column, or nested dicts of such."""
    if not isinstance(value, Mapping):
        yield name, np.asarray(value)
        return
    stacks = unpacked(value)
    if stacks is not None:
        yield name, stacks
        return
    for key, child in value.items():
        for path, array in flatten(join_path([str(key)]), child):
            yield f"{name}/{path}", array


def check_numbers(array: Array, name: str) -> None:
    """Raise ParlError, with the value and its place, where an array of floats has NaN or an infinity."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = np.argwhere(~np.isfinite(array))[0].tolist()
    raise ParlError(f"{name} has {array[tuple(place)]} at {place}: a buffer takes finite numbers only")


def _column(rollout: Mapping[str, Any], name: str) -> Any:
    if name not in rollout:
        raise ParlError(f"a rollout has no column {name!r}: it has {', '.join(map(str, rollout))}")
    return rollout[name]


def _flags(column: Any, name: str) -> Array:
    flags = np.asarray(column)
    if flags.dtype != bool:
        raise ParlError(f"column {name!r} has dtype {flags.dtype}: it must be bool")
    return flags


def _check(column: Array | Stacks, name: str, lead: tuple[int, int]) -> None:
    if column.shape[:2] != lead:
        raise ParlError(f"column {name!r} has shape {column.shape}, and must begin with {lead} for this rollout")
    if column.dtype.kind not in "biuf":
        raise ParlError(f"column {name!r} has dtype {column.dtype}: a buffer takes numbers and booleans")
    if isinstance(column, Stacks):
        column.check(name)
        for part in (column.newest, column.whole, column.final_newest):
            check_numbers(part, f"column {name!r}")
    else:
        check_numbers(column, f"column {name!r}")


def _finals(
    rollout: Mapping[str, Any], columns: Mapping[str, Array], obs: Mapping[str, Any]
) -> tuple[dict[str, Array], tuple[Array, Array]]:
    """Return the final observations by path, and where they belong."""
    if "final_row" not in rollout:
        nowhere = np.zeros(0, dtype=np.int64)
        return {path: np.zeros((0, *array.shape[2:]), array.dtype) for path, array in obs.items()}, (nowhere, nowhere)
    rows = np.asarray(rollout["final_row"], dtype=np.int64)
    ended, cut_off = (np.flatnonzero(flags & columns["step"]) for flags in _ends(columns))
    if not (np.isin(rows, ended).all() and np.isin(cut_off, rows).all() and len(set(rows.tolist())) == len(rows)):
        said = f"episodes end in rows {ended.tolist()} and are truncated in {cut_off.tolist()}: of these each needs one"
        raise ParlError(f"final_row is {rows.tolist()}, but {said}")
    final_obs = dict(flatten("obs", _column(rollout, "final_obs")))
    for path, array in obs.items():
        item = array.newest.shape[2:] if isinstance(array, Stacks) else array.shape[2:]
        if path not in final_obs or final_obs[path].shape != (len(rows), *item):
            seen = final_obs[path].shape if path in final_obs else "missing"
            raise ParlError(f"final {path!r} is {seen}: it must have shape {(len(rows), *item)}")
        check_numbers(final_obs[path], f"final {path!r}")
    t, b = np.divmod(rows, columns["reward"].shape[1])
    return final_obs, (t, b)


def _ends(columns: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return where episodes end (T, B), and where they do so in a state that has a value (T, B)."""
    return columns["terminated"] | columns["truncated"], columns["truncated"] & ~columns["terminated"]


def _first(rollout: Mapping[str, Any], columns: Mapping[str, Array]) -> Array:
    """Return which rows begin an episode; without a column `first` row 0 counts as going on."""
    n_steps, n_envs = columns["reward"].shape
    if "first" in rollout:
        first = _flags(rollout["first"], "first")
        _check(first, "first", (n_steps + 1, n_envs))
        return first
    first = np.zeros((n_steps + 1, n_envs), dtype=bool)
    ended, _ = _ends(columns)
    first[1:] = ended & columns["step"] if "final_row" in rollout else ~columns["step"]
    return first
