"""What all replay buffers share: adding rollouts, drawing batches, priorities, saving. Knows no kind of item.

rollouts ──▶ StepStore (rows) ──▶ items: rows from which a batch can be read ──▶ sampler (which of them) ──▶ batch
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from parl_lite.columns import nest
from parl_lite.errors import ParlError

from .persistence import read_folder, write_folder
from .prioritized import PrioritizedSampler, check_priorities, importance_weights
from .steps import Added, Source, StepStore, check_schema
from .uniform import Array, UniformSampler

Batch = dict[str, Any]
Sampler = UniformSampler | PrioritizedSampler


class Draw(NamedTuple):
    """A batch and how likely each of its N items was."""

    batch: Batch
    probability: Array
    """(N,) float64"""


class ReplayBuffer:
    """Base of the buffers; see TransitionReplay and SequenceReplay.

    Attributes:
        n_inserted: items that came so far.
        n_drawn: items that were drawn so far.
    """

    def __init__(self, store: StepStore, sampler: Sampler, *, min_size: int, seed: int | np.random.SeedSequence) -> None:
        capacity = store.ring.capacity
        if not 1 <= min_size <= capacity:
            raise ParlError(f"min_size is {min_size}: it must be at least 1, and at most the capacity of {capacity}")
        self.store, self.sampler = store, sampler
        self.min_size = min_size
        self.n_inserted = 0
        self.n_drawn = 0
        self._random = np.random.Generator(np.random.PCG64(seed))
        sampler.open(capacity)

    def __len__(self) -> int:
        """Return how many items can be drawn."""
        return self.sampler.n_items

    @property
    def capacity(self) -> int:
        """Rows."""
        return self.store.ring.capacity

    def add(self, rollout: Mapping[str, Any], source: int = 0, number: int | None = None) -> int:
        """Store a rollout; return how many items came with it.

        Args:
            rollout: columns (T, B, ...) as in `collector.py`, with `priority` (T, B) if the actor computed it.
            source: which actor it is from; rollouts of one source go on from one to the next.
            number: of the rollout, counted by its source; without, it is the next. A rollout with a number that the
                source has passed is not stored again, and 0 is returned.

        Raises:
            ParlError: a column is missing or malformed; nothing was stored.
        """
        priority = self._priority(rollout)
        added = self.store.add(rollout, source, number)
        if added is None:
            return 0
        self.sampler.remove(added.lost)
        n_items = self._insert(rollout, added, source, priority)
        self.n_inserted += n_items
        return n_items

    def n_items_of(self, n_steps: int) -> int:
        """Return how many items about come with so many steps."""
        return n_steps

    def sample(self, n: int) -> Batch:
        """Return a batch of `n` items, drawn with replacement; where prioritized with `weight` and `index`.

        Raises:
            ParlError: there are fewer than `min_size` items, or all priorities are 0.
        """
        return self.draw(n).batch

    def draw(self, n: int) -> Draw:
        """Return what `sample` does, with the probabilities, from which weights over several buffers can be made."""
        if n < 1:
            raise ParlError(f"a batch of {n} items: it must have at least 1")
        if len(self) < self.min_size:
            raise ParlError(f"there are {len(self)} items to draw from, and {self.min_size} are needed: add rollouts first")
        rows, probability = self.sampler.draw(n, self._random)
        batch = self._read(rows)
        if self.sampler.prioritized:
            batch["weight"] = importance_weights(probability, len(self), self.sampler.weight_exponent())
        batch["index"] = self.store.ring.serial[rows]
        self.n_drawn += n
        return Draw(batch, probability)

    def update_priorities(self, index: Array, priority: Array) -> int:
        """Give items new priorities; return how many were still there.

        Args:
            index: (N,) int64, as `sample` gave it; of equal ones the last counts.
            priority: (N,) absolute TD errors, 0 or more.
        """
        index, priority = np.asarray(index), check_priorities(priority)
        if index.ndim != 1 or index.shape != priority.shape or index.dtype.kind not in "iu":
            seen = f"index {index.dtype} {index.shape} and priority {priority.shape}"
            raise ParlError(f"{seen}: both must have shape (N,), and index the whole numbers that came with the batch")
        rows, there = self.store.ring.positions_of(index)
        there &= self.sampler.present[rows] & (index >= 0)
        self.sampler.update(rows[there], priority[there])
        return int(np.count_nonzero(there))

    # --- saving --------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], facts: Mapping[str, Any] | None = None) -> None:
        """Write all there is to go on bit by bit to a folder of Arrow files, atomically; `facts` are kept along."""
        tables, state = self._state()
        write_folder(folder, tables, {"config": self._config(), "state": state, "facts": dict(facts or {})})

    def restore(self, folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Go on from what `save` wrote, bit by bit; return its facts.

        Raises:
            ParlError: there is nothing complete to read, or this buffer was made with other settings.
        """
        document, read = read_folder(folder)
        mine = self._config()
        for name, value in document["config"].items():
            if mine.get(name) != value:
                raise ParlError(f"{folder} holds a buffer with {name} = {value}, and this one has {mine.get(name)}")
        self._restore(document["state"], read)
        facts: dict[str, Any] = document["facts"]
        return facts

    def _state(self) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
        store, ring = self.store, self.store.ring
        arrays, sampler = self.sampler.state()
        rows = {"serial": ring.serial, "alive": ring.alive, "successor": ring.successor}
        rows |= {f"sampler/{name}": array for name, array in arrays.items()}
        rows |= {f"step/{name}": array for name, array in store.columns.items()}
        for path, column in store.obs.items():
            rows |= {f"{path}/{name}": array for name, array in column.arrays.items()}
        schema = store.schema()
        state = {
            "n_written": ring.n_written,
            "n_inserted": self.n_inserted,
            "n_drawn": self.n_drawn,
            "random": self._random.bit_generator.state,
            "sampler": sampler,
            "sources": {
                str(name): [source.number, source.open_rows.tolist(), source.history.tolist(), source.history.shape]
                for name, source in store.sources.items()
            },
            "schema": {
                kind: {name: [list(shape), dtype.str] for name, (shape, dtype) in part.items()} for kind, part in schema.items()
            },
        }
        return {"rows": {name: array[: ring.n_rows] for name, array in rows.items()}}, state

    def _restore(self, state: Mapping[str, Any], read: Any) -> None:
        store, ring = self.store, self.store.ring
        schema = {
            kind: {name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in part.items()}
            for kind, part in state["schema"].items()
        }
        if store.columns:
            check_schema(store.schema(), schema)
        elif schema["columns"]:
            store.allocate(schema["obs"], schema["columns"])
        sampler = {name: np.array(array) for name, array in self.sampler.state()[0].items()}
        targets = {"serial": ring.serial, "alive": ring.alive, "successor": ring.successor}
        targets |= {f"sampler/{name}": array for name, array in sampler.items()}
        targets |= {f"step/{name}": array for name, array in store.columns.items()}
        for path, column in store.obs.items():
            targets |= {f"{path}/{name}": array for name, array in column.arrays.items()}
        ring.n_written = state["n_written"]
        ring.serial[ring.n_rows :], ring.alive[ring.n_rows :], ring.successor[ring.n_rows :] = -1, False, -1
        read("rows", targets)
        self.sampler.restore({name: array[: ring.n_rows] for name, array in sampler.items()}, state["sampler"])
        store.sources = {
            int(name): Source(number, np.array(rows, np.int64), np.array(history, np.int64).reshape(shape))
            for name, (number, rows, history, shape) in state["sources"].items()
        }
        self.n_inserted, self.n_drawn = state["n_inserted"], state["n_drawn"]
        self._random.bit_generator.state = state["random"]

    # --- what the kinds of buffers differ in ---------------------------------------------------------------

    def _priority(self, rollout: Mapping[str, Any]) -> Array | None:
        """Return the priorities (T, B) that came with a rollout, checked."""
        if not {"priority", "reward"} <= rollout.keys() or not self.sampler.prioritized:
            return None
        priority, shape = np.asarray(rollout["priority"]), np.shape(rollout["reward"])
        if priority.shape != shape:
            raise ParlError(f"column 'priority' has shape {priority.shape}: it must have one for each step, {shape}")
        return check_priorities(priority)

    def _config(self) -> dict[str, Any]:
        raise NotImplementedError

    def _insert(self, rollout: Mapping[str, Any], added: Added, source: int, priority: Array | None) -> int:
        raise NotImplementedError

    def _read(self, rows: Array) -> Batch:
        raise NotImplementedError


def nested(name: str, columns: Mapping[str, Array]) -> Any:
    """Return the columns "obs/..." as nested dicts, under `name` = "obs"; a column that is "obs" itself as it is."""
    return nest(columns.keys(), columns.values())[name]
