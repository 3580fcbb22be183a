"""Rollouts as rows of a ring, each observation once. Knows rollouts and rings; nothing of windows, sequences and sampling.

A row is an observation, and the step that was taken from it. The observation after the last step of a rollout is kept
as an open row, whose step comes with the next rollout of the same source. The rows of an environment are chained in the
one way of NEXT_STEP autoreset, whatever the mode of the environments was: after the last step of an episode comes its
final observation, a row that is no step, then the first row of the next episode.

A rollout goes on with the one before of its source if its number is the next and its first observations are those that
are open there. If not, as after a lost rollout, its rows begin a new chain, and nothing reaches over the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl_lite.errors import ParlError

from .frames import StackedColumn
from .gather import take_rows
from .ring import Array, Ring
from .rollouts import Steps, read_rollout
from .stacks import Stacks, is_stacked
from .storage import Layout, Places, PlainColumn

STEP_COLUMNS = ("action", "reward", "terminated", "truncated", "step")


@dataclass
class Source:
    """Where the rollouts of one actor have got to."""

    number: int
    """of its last rollout, from 0"""
    open_rows: Array
    """(B,) serials of the rows that wait for their step"""
    history: Array
    """(P, B) serials of the rows before, P at most what the buffer asks for"""


@dataclass(frozen=True)
class Added:
    """What a rollout became."""

    rows: Array
    """(T + 1, B) positions; the last are open"""
    history: Array
    """(P, B) positions of the rows before, if it goes on"""
    lost: Array
    """positions whose rows are gone, or cannot be read any more"""
    fresh: bool
    """whether a new chain begins"""


class StepStore:
    """Columns of `capacity` rows.

    Args:
        capacity: rows: steps, final observations and, with frame stacks, frames that no row has.
        frame_stack: observations whose first axis has this length, and two axes or more, are taken for stacks of frames;
            0: none are.
        extra: names of further columns (T, B, ...) of the rollouts to keep.
        n_history: P of Source.
        n_threads: that copy the observations of a batch.
    """

    def __init__(
        self,
        capacity: int,
        *,
        frame_stack: int = 0,
        extra: Sequence[str] = (),
        n_history: int = 0,
        n_threads: int = 1,
    ) -> None:
        if capacity < 2:
            raise ParlError(f"a replay buffer of capacity {capacity}: it needs at least 2 rows, for one transition")
        if frame_stack == 1 or frame_stack < 0:
            raise ParlError(f"frame_stack is {frame_stack}: it must be the number of frames in a stack, or 0 for no stacks")
        if n_threads < 1:
            raise ParlError(f"n_threads is {n_threads}: it must be at least 1")
        self.n_threads = n_threads
        self.ring = Ring(capacity)
        self.columns: dict[str, Array] = {}
        self.obs: dict[str, PlainColumn | StackedColumn] = {}
        self.sources: dict[int, Source] = {}
        self._frame_stack = frame_stack
        self._extra = tuple(extra)
        self._n_history = n_history

    def add(self, rollout: Mapping[str, Any], source: int = 0, number: int | None = None) -> Added | None:
        """Store a rollout; return None if rollout `number` of this source was added before.

        Raises:
            ParlError: the rollout is malformed, or bigger than the ring; nothing has changed.
        """
        steps = read_rollout(rollout, self._extra)
        known = self.sources.get(source)
        if number is None:
            number = known.number + 1 if known else 0
        if known and number <= known.number:
            return None
        self._fit(steps)
        fresh = known is None or number != known.number + 1 or not self._goes_on(known, steps)
        layouts = self._layouts(steps, fresh)
        if not fresh and known and np.isin(self._positions(known.open_rows), self._lost(steps, layouts)).any():
            layouts = self._layouts(steps, True)
        added = self._write(steps, layouts, known)
        self._remember(source, number, steps, added)
        return added

    def read(self, rows: Array) -> dict[str, Array]:
        """Return the observations (N, *shape) at positions `rows` (N,), by path."""
        return self.read_each(rows)[0]

    def read_each(self, *rows: Array) -> list[dict[str, Array]]:
        """Return the observations at several arrays of positions, 0 or more, as `read`; copied together."""
        taken = iter(take_rows([column.source(some) for some in rows for column in self.obs.values()], self.n_threads))
        return [{path: next(taken).reshape(len(some), *column.shape) for path, column in self.obs.items()} for some in rows]

    def allocate(self, obs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], columns: Mapping[str, Any]) -> None:
        """Make the columns: of observations by path and of steps by name, each from (shape of a row, dtype)."""
        capacity = self.ring.capacity
        for path, (shape, dtype) in obs.items():
            column = StackedColumn if is_stacked(shape, self._frame_stack) else PlainColumn
            self.obs[path] = column(capacity, shape, dtype)
        flags = {"first": ((), np.dtype(bool))}
        for name, (shape, dtype) in {**columns, **flags}.items():
            self.columns[name] = np.zeros((capacity, *shape), dtype=dtype)

    def schema(self) -> dict[str, dict[str, tuple[tuple[int, ...], np.dtype[Any]]]]:
        """Return what `allocate` was given."""
        obs = {path: (column.shape, column.dtype) for path, column in self.obs.items()}
        columns = {name: (array.shape[1:], array.dtype) for name, array in self.columns.items() if name != "first"}
        return {"obs": obs, "columns": columns}

    def _fit(self, steps: Steps) -> None:
        """Make the columns for the first rollout; raise ParlError for others that differ from it."""
        obs = {path: (array.shape[2:], array.dtype) for path, array in steps.obs.items()}
        columns = {name: (array.shape[2:], array.dtype) for name, array in steps.columns.items()}
        if not self.columns:
            self.allocate(obs, columns)
        check_schema(self.schema(), {"obs": obs, "columns": columns})
        for path, column in self.obs.items():
            if isinstance(column, PlainColumn) and isinstance(steps.obs[path], Stacks):
                raise ParlError(f"the frames of {path!r} came packed, and this buffer has frame_stack {self._frame_stack}")

    def _goes_on(self, known: Source, steps: Steps) -> bool:
        """Return whether a rollout begins with the observations that are open."""
        rows, there = self.ring.positions_of(known.open_rows)
        if len(rows) != steps.shape[1] or not there.all():
            return False
        first = {path: obs.first if isinstance(obs, Stacks) else obs[0] for path, obs in steps.obs.items()}
        return all(np.array_equal(obs, first[path]) for path, obs in self.read(rows).items())

    def _layouts(self, steps: Steps, fresh: bool) -> dict[str, Layout]:
        return {
            path: column.layout(steps.obs[path], steps.final_obs[path], steps.final_at, fresh)
            for path, column in self.obs.items()
        }

    def _lost(self, steps: Steps, layouts: Mapping[str, Layout]) -> Array:
        """Return the positions that are lost by writing these layouts."""
        n_rows = sum(_n_rows(steps, layouts))
        if n_rows > self.ring.capacity:
            shape = "a rollout of {} steps of {} environments".format(*steps.shape)
            raise ParlError(f"{shape} takes {n_rows} rows, and the buffer has {self.ring.capacity}: give it more capacity")
        overwritten = self.ring.next_positions(n_rows)
        if self.ring.n_written + n_rows <= self.ring.capacity:
            return overwritten[:0]
        return np.concatenate([overwritten, *(c.broken(overwritten, self.ring.successor) for c in self.obs.values())])

    def _write(self, steps: Steps, layouts: Mapping[str, Layout], known: Source | None) -> Added:
        ring = self.ring
        fresh = next(iter(layouts.values())).fresh
        lost = self._lost(steps, layouts)
        n_obs, n_final, n_fillers = _n_rows(steps, layouts)
        ring.alive[lost] = False
        positions = ring.take(n_obs + n_final + n_fillers)
        places = _places(positions, steps, fresh, n_fillers)
        if not fresh and known:
            places.rows[0] = self._positions(known.open_rows)
        for array in self.columns.values():
            array[positions] = 0
        for path, column in self.obs.items():
            column.write(layouts[path], places)
        for name, array in steps.columns.items():
            self.columns[name][places.rows[:-1]] = array
        self.columns["first"][places.rows[0 if fresh else 1 :]] = steps.first[0 if fresh else 1 :]
        ring.successor[places.rows[:-1]] = places.rows[1:]
        ring.successor[places.final_rows] = places.rows[1:][places.final_at]
        ring.successor[places.rows[:-1][places.final_at]] = places.final_rows
        return Added(places.rows, self._history(known, fresh, steps.shape[1]), lost, fresh)

    def _history(self, known: Source | None, fresh: bool, n_envs: int) -> Array:
        """Return the positions (P, B) of the rows before; none unless all are still there."""
        if fresh or known is None or not len(known.history):
            return np.zeros((0, n_envs), dtype=np.int64)
        rows, there = self.ring.positions_of(known.history)
        return rows if there.all() else rows[:0]

    def _remember(self, source: int, number: int, steps: Steps, added: Added) -> None:
        serial = self.ring.serial
        rows = np.concatenate([added.history, added.rows[:-1]])
        history = serial[rows[max(0, len(rows) - self._n_history) :]]
        self.sources[source] = Source(number, serial[added.rows[-1]], history)

    def _positions(self, serials: Array) -> Array:
        return serials % self.ring.capacity


def check_schema(mine: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ParlError where the rows of `other` are not those of this buffer."""
    for kind in mine:
        if mine[kind].keys() != other[kind].keys():
            raise ParlError(f"columns {sorted(other[kind])} do not fit this buffer, which has {sorted(mine[kind])}")
        for name, (shape, dtype) in mine[kind].items():
            if other[kind][name] != (shape, dtype):
                seen, kept = (f"{d} {tuple(s)}" for s, d in (other[kind][name], (shape, dtype)))
                raise ParlError(f"column {name!r} has rows of {seen}, and this buffer has rows of {kept}")


def _n_rows(steps: Steps, layouts: Mapping[str, Layout]) -> tuple[int, int, int]:
    """Return how many rows observations, final observations and fillers take."""
    n_steps, n_envs = steps.shape
    n_fillers = max(layout.n_fillers for layout in layouts.values())
    fresh = next(iter(layouts.values())).fresh
    return (n_steps + fresh) * n_envs, len(steps.final_at[0]), n_fillers


def _places(positions: Array, steps: Steps, fresh: bool, n_fillers: int) -> Places:
    """Deal out positions in the order of time; fillers last, so that they are not lost before the rows that use them."""
    n_steps, n_envs = steps.shape
    t, b = steps.final_at
    begin = 0 if fresh else 1
    n_obs = (n_steps + 1 - begin) * n_envs
    time = np.concatenate([2 * (np.arange(n_obs) // n_envs + begin), 2 * t + 1])
    dealt = np.empty(len(time), dtype=np.int64)
    dealt[np.argsort(time, kind="stable")] = positions[: len(time)]
    rows = np.zeros((n_steps + 1, n_envs), dtype=np.int64)
    rows[begin:] = dealt[:n_obs].reshape(-1, n_envs)
    return Places(rows, dealt[n_obs:], (t, b), positions[len(time) :])
