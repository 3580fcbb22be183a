"""The buffer of sequences with their recurrent states, for R2D2 and Agent57 (Kapturowski et al. 2019). Knows rows and chains.

A sequence starts where a rollout starts, since that is where its recurrent state is known, at least `period` rows after
the one before; so it overlaps with the next by length - period. Rollouts of T = period rows give one start each. It is an
item once the rows up to its end are there.

    rows          0 ... burn_in - 1 | burn_in ... length - 1
                  warm the state up | learn

Sequences go over the end of an episode: after the last step comes its final observation, a row with valid = False, then
the next episode, whose first row is marked `first`: there the state is zeroed, in the burn-in too. With
cross_episodes = False a sequence ends with the episode, the rows after its final observation are zeros with
valid = False, and another sequence starts with each episode, from a state of zeros; the first burn_in steps of an
episode are then never learned from. Where rollouts of a source are
missing, sequences that were under way end in the same way, if they have rows to learn from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl_lite.errors import ParlError

from .buffer import Batch, ReplayBuffer, Sampler, nested
from .states import StateStore
from .steps import Added, StepStore
from .uniform import Array, UniformSampler


@dataclass
class Unfinished:
    """Sequences of one source that have started and not ended, and how many rows ago the last did."""

    serial: Array
    """(Q,) of their first rows"""
    n_rows: Array
    """(Q,) rows they have so far"""
    since_start: int
    """Rows since a sequence last started where a rollout did."""


def mixed_priority(error: Array, valid: Array, eta: float) -> Array:
    """Return eta * max + (1 - eta) * mean of absolute errors (L, N) over the valid rows of each sequence: (N,) float64.

    A sequence without valid rows has priority 0.
    """
    error = np.where(valid, np.abs(error), 0.0).astype(np.float64)
    mean = error.sum(axis=0) / np.maximum(1, valid.sum(axis=0))
    return np.asarray(eta * error.max(axis=0) + (1 - eta) * mean)


class SequenceReplay(ReplayBuffer):
    """Sequences of `length` rows.

    A batch is a dict of arrays (L, N, ...), time first: obs, action, reward, terminated, truncated, first, valid, and those
    asked for by `extra`; further state (N, ...), the recurrent state at row 0 as the rollouts had it, burn_in (an int),
    index (N,), and where prioritized weight (N,).

    A rollout's column `priority` (T, B) holds absolute TD errors; a sequence gets their mixture by `eta` over the rows after
    the burn-in.

    Args:
        capacity: rows, as in TransitionReplay; about capacity / period sequences.
        length: rows of a sequence, burn-in included.
        burn_in: rows at its beginning from which nothing is learned.
        period: rows from one start to the next; without, length - burn_in.
        cross_episodes: see above.
        eta: share of the maximum in a priority.
        sampler, frame_stack, extra, min_size (in sequences), seed, n_threads: as in TransitionReplay.
    """

    def __init__(
        self,
        capacity: int,
        *,
        length: int,
        burn_in: int = 0,
        period: int | None = None,
        cross_episodes: bool = True,
        eta: float = 0.9,
        sampler: Sampler | None = None,
        frame_stack: int = 0,
        extra: Sequence[str] = (),
        min_size: int = 1,
        seed: int | np.random.SeedSequence = 0,
        n_threads: int = 1,
    ) -> None:
        period = length - burn_in if period is None else period
        if not 0 <= burn_in < length <= capacity or not 1 <= period <= length or not 0 <= eta <= 1:
            settings = f"length {length}, burn_in {burn_in}, period {period}, eta {eta}, capacity {capacity}"
            raise ParlError(f"{settings}: needs 0 <= burn_in < length <= capacity, 1 <= period <= length and eta within [0, 1]")
        store = StepStore(capacity, frame_stack=frame_stack, extra=extra, n_threads=n_threads)
        super().__init__(store, sampler or UniformSampler(), min_size=min_size, seed=seed)
        self.length, self.burn_in, self.period = length, burn_in, period
        self.cross_episodes, self.eta = cross_episodes, eta
        self._frame_stack, self._extra = frame_stack, tuple(extra)
        self._states = StateStore(math.ceil(capacity / period) + 1, capacity)
        self._error = np.zeros(capacity, dtype=np.float32)
        self._has_error = np.zeros(capacity, dtype=bool)
        self._unfinished: dict[int, Unfinished] = {}

    def n_items_of(self, n_steps: int) -> int:
        """Return how many sequences about come with so many steps."""
        return math.ceil(n_steps / self.period)

    def _insert(self, rollout: Mapping[str, Any], added: Added, source: int, priority: Array | None) -> int:
        rows = added.rows[:-1]
        self._error[rows] = 0.0 if priority is None else priority
        self._has_error[rows] = priority is not None
        self._states.forget(added.rows)
        under_way = self._unfinished.setdefault(source, _nothing_unfinished())
        n_items = 0
        if added.fresh:
            n_items = self._finish(under_way.serial[under_way.n_rows > self.burn_in])
            under_way = self._unfinished[source] = _nothing_unfinished()
        self._start(rollout, added, under_way)
        done = under_way.n_rows >= self.length
        n_items += self._finish(under_way.serial[done])
        under_way.serial, under_way.n_rows = under_way.serial[~done], under_way.n_rows[~done]
        return n_items

    def _start(self, rollout: Mapping[str, Any], added: Added, under_way: Unfinished) -> None:
        """Note the sequences that start in a rollout, and the rows that all have got by it."""
        rows, n_steps = added.rows[:-1], len(added.rows) - 1
        under_way.n_rows = under_way.n_rows + n_steps
        starts = np.zeros(rows.shape, dtype=bool)
        if not self.cross_episodes:
            starts = self.store.columns["first"][rows]
        if under_way.since_start >= self.period or added.fresh:
            starts[0] |= self.cross_episodes | self.store.columns["step"][rows[0]]
            under_way.since_start = 0
            self._keep_state(rollout, rows[0])
        under_way.since_start += n_steps
        t, _ = np.nonzero(starts)
        under_way.serial = np.concatenate([under_way.serial, self.store.ring.serial[rows[starts]]])
        under_way.n_rows = np.concatenate([under_way.n_rows, n_steps - t])

    def _keep_state(self, rollout: Mapping[str, Any], rows: Array) -> None:
        if "state" in rollout:
            self.sampler.remove(self._states.keep(rows, rollout["state"]))

    def _finish(self, serials: Array) -> int:
        """Make items of the sequences that start at rows `serials`, if there is something to learn from; return how many."""
        rows, there = self.store.ring.positions_of(serials)
        rows = rows[there]
        chain, is_row = self._chain(rows)
        learned = (is_row & self.store.columns["step"][chain])[self.burn_in :]
        useful = learned.any(axis=0)
        priority = None
        if self._has_error[rows].all():
            priority = mixed_priority(self._error[chain][self.burn_in :], learned, self.eta)[useful]
        self.sampler.insert(rows[useful], priority)
        return int(np.count_nonzero(useful))

    def _chain(self, start: Array) -> tuple[Array, Array]:
        """Return the rows (L, N) of the sequences that start at `start` (N,), and where there is one (L, N) bool."""
        successor, first = self.store.ring.successor, self.store.columns["first"]
        chain = np.empty((self.length, len(start)), dtype=np.int64)
        is_row = np.ones(chain.shape, dtype=bool)
        chain[0] = start
        for k in range(1, self.length):
            chain[k] = successor[chain[k - 1]]
            is_row[k] = is_row[k - 1] & (chain[k] >= 0)
            if not self.cross_episodes:
                is_row[k] &= ~first[chain[k]]
        return np.where(is_row, chain, 0), is_row

    def _read(self, rows: Array) -> Batch:
        chain, is_row = self._chain(rows)
        columns, flat = self.store.columns, chain.reshape(-1)
        obs = {path: array.reshape(*chain.shape, *array.shape[1:]) for path, array in self.store.read(flat).items()}
        names = ("action", "reward", "terminated", "truncated", "first", *self._extra)
        batch: Batch = {**obs, **{name: columns[name][chain] for name in names}, "valid": columns["step"][chain]}
        if not is_row.all():
            for array in batch.values():
                array[~is_row] = 0
        batch = {"obs": nested("obs", obs), **{name: batch[name] for name in (*names, "valid")}}
        return batch | {"state": self._states.read(rows), "burn_in": self.burn_in}

    def _config(self) -> dict[str, Any]:
        return {
            "kind": "sequences",
            "capacity": self.capacity,
            "length": self.length,
            "burn_in": self.burn_in,
            "period": self.period,
            "cross_episodes": self.cross_episodes,
            "eta": self.eta,
            "frame_stack": self._frame_stack,
            "extra": list(self._extra),
            "sampler": self.sampler.facts,
        }

    def _state(self) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
        tables, state = super()._state()
        n_rows = self.store.ring.n_rows
        tables["rows"] |= {name: array[:n_rows] for name, array in self._row_arrays().items()}
        tables["states"] = self._states.arrays
        state["states"] = self._states.facts
        state["unfinished"] = {
            str(source): [one.serial.tolist(), one.n_rows.tolist(), one.since_start] for source, one in self._unfinished.items()
        }
        return tables, state

    def _restore(self, state: Mapping[str, Any], read: Any) -> None:
        super()._restore(state, read)
        read("rows", self._row_arrays())
        self._states.open(state["states"])
        read("states", self._states.arrays)
        self._unfinished = {
            int(source): Unfinished(np.array(serial, np.int64), np.array(n_rows, np.int64), since_start)
            for source, (serial, n_rows, since_start) in state["unfinished"].items()
        }

    def _row_arrays(self) -> dict[str, Array]:
        return {"error": self._error, "has_error": self._has_error, "state_slot": self._states.slot}


def _nothing_unfinished() -> Unfinished:
    return Unfinished(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0)
