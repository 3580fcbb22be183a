"""Data sets of whole episodes, in Feather or Parquet files, drawn from like a buffer. Knows files, not who wrote them.

A data set is one table, or several files of it, with a row for each observation in order, as Minari's Arrow storage has it:

    episode_id              int     rows of one episode follow each other; without it the file is one episode
    observations            (...)   or several columns: "observations/image", ...
    actions                 (...)   what was done then; in the last row of an episode, as in the next three, padding
    rewards                 float
    terminations            bool
    truncations             bool

Other columns are left alone. An episode of T steps has T + 1 rows. One that was cut off without a mark counts as truncated.
Feather files are mapped into memory: a batch reads what it needs and nothing else; Parquet files are read whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite.errors import ParlError
from parl_lite.rollout import Rollout

from .buffer import Batch, nested
from .n_step import n_step_windows
from .rollouts import check_numbers, flatten

Array = np.ndarray[Any, Any]
Episode = Mapping[str, Any]
"""observations (T + 1, ...), an array or a dict of such; actions (T, ...), rewards, terminations, truncations (T,)."""

_STEP_COLUMNS = ("actions", "rewards", "terminations", "truncations")


def save_episodes(path: str | os.PathLike[str], episodes: Iterable[Episode], first_id: int = 0) -> None:
    """Write episodes to a ".feather", ".arrow" or ".parquet" file, atomically; they are numbered from `first_id`.

    Raises:
        ParlError: an episode has no step, or parts of other lengths.
    """
    parts = [_rows_of(episode, first_id + i) for i, episode in enumerate(episodes)]
    if not parts:
        raise ParlError(f"no episodes to write to {path}")
    Rollout.concatenate(parts).save(path)


class OfflineReplay:
    """Transitions of a data set, drawn uniformly. Its batches are those of TransitionReplay, without `index` and `weight`.

    Args:
        paths: a file, several, or a folder, of which all ".feather", ".arrow" and ".parquet" files are read, in the order of
            their names.
        n_step: steps of a window.
        gamma: discount of one step.
        seed: of the draws.

    Raises:
        ParlError: there are no files, or one is no such data set.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        n_step: int = 1,
        gamma: float = 0.99,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self._parts = [_Part(path, n_step, gamma) for path in _files(paths)]
        self._starts = np.cumsum([0] + [len(part.steps) for part in self._parts])
        self._random = np.random.Generator(np.random.PCG64(seed))
        self.n_drawn = 0

    def __len__(self) -> int:
        """Return how many transitions there are."""
        return int(self._starts[-1])

    def sample(self, n: int) -> Batch:
        """Return a batch of `n` transitions, drawn with replacement."""
        items = self._random.integers(0, len(self), n)
        self.n_drawn += n
        if len(self._parts) == 1:
            return self._parts[0].read(items)
        owner = np.searchsorted(self._starts, items, side="right") - 1
        order = np.argsort(owner, kind="stable")
        back = np.argsort(order, kind="stable")
        batches = [part.read(items[owner == i] - self._starts[i]) for i, part in enumerate(self._parts) if (owner == i).any()]
        return {name: _joined([batch[name] for batch in batches], back) for name in batches[0]}

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield each episode as a rollout (T, 1, ...), to be added to a buffer of any kind."""
        for part in self._parts:
            yield from part.rollouts()

    def state(self) -> dict[str, Any]:
        """Return what decides on the next draws, plain values."""
        return {"n_drawn": self.n_drawn, "random": self._random.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.n_drawn, self._random.bit_generator.state = state["n_drawn"], state["random"]


class _Part:
    """One file: its columns, and where its steps lie."""

    def __init__(self, path: Path, n_step: int, gamma: float) -> None:
        try:
            arrays = Rollout.from_arrow(_table(path)).arrays
            self._actions, reward, *ends = (arrays[name] for name in _STEP_COLUMNS)
        except (OSError, ValueError, KeyError) as error:
            raise ParlError(f"{path} is no data set of episodes: {error!r}") from error
        self._obs = {f"obs{name[12:]}": array for name, array in arrays.items() if name.split("/")[0] == "observations"}
        if not self._obs:
            raise ParlError(f"{path} is no data set of episodes: it has no column 'observations'")
        terminated, truncated = (np.asarray(flags, dtype=bool) for flags in ends)
        ids = arrays.get("episode_id", np.zeros(len(reward), dtype=np.int64))
        is_step = np.append(ids[1:] == ids[:-1], False)
        self.steps = np.flatnonzero(is_step)
        if not len(self.steps):
            raise ParlError(f"{path} is no data set of episodes: none of its {len(ids)} rows has a successor")
        reward = np.where(is_step, reward, 0.0)
        check_numbers(reward, f"{path}: rewards")
        terminated, truncated = terminated & is_step, truncated & is_step
        windows = n_step_windows(reward[:, None], terminated[:, None], truncated[:, None], is_step[:, None], gamma, n_step)
        self._windows = windows._replace(**{name: column[:, 0] for name, column in windows._asdict().items()})
        self._ends = np.flatnonzero(~is_step)
        self._reward, self._terminated = reward, terminated

    def read(self, items: Array) -> Batch:
        rows = self.steps[items]
        following = self._windows.last[rows] + 1
        return {
            "obs": nested("obs", {path: array[rows] for path, array in self._obs.items()}),
            "action": self._actions[rows],
            "reward": self._windows.reward[rows],
            "discount": self._windows.discount[rows],
            "next_obs": nested("obs", {path: array[following] for path, array in self._obs.items()}),
        }

    def rollouts(self) -> Iterator[dict[str, Any]]:
        for begin, end in zip([0, *(self._ends[:-1] + 1)], self._ends, strict=True):
            if end > begin:
                yield self._rollout_of(int(begin), int(end))

    def _rollout_of(self, begin: int, end: int) -> dict[str, Any]:
        steps, n = slice(begin, end), end - begin
        terminated = self._terminated[steps, None]
        return {
            "obs": nested("obs", {path: array[begin : end + 1, None] for path, array in self._obs.items()}),
            "final_obs": nested("obs", {path: array[end : end + 1] for path, array in self._obs.items()}),
            "final_row": np.array([n - 1]),
            "first": np.arange(n + 1)[:, None] == 0,
            "action": self._actions[steps, None],
            "reward": self._reward[steps, None].astype(np.float32),
            "terminated": terminated,
            "truncated": (np.arange(n) == n - 1)[:, None] & ~terminated,
        }


def _rows_of(episode: Episode, number: int) -> Rollout:
    """Return the T + 1 rows of an episode."""
    columns = {name: np.asarray(episode[name]) for name in _STEP_COLUMNS}
    n_steps = len(columns["rewards"])
    observations = dict(flatten("observations", episode["observations"]))
    lengths = {name: len(array) for name, array in columns.items()} | {
        name: len(array) - 1 for name, array in observations.items()
    }
    if n_steps == 0 or set(lengths.values()) != {n_steps}:
        raise ParlError(
            f"episode {number} has {lengths} steps by column: all must have as many, at least 1, and one observation more"
        )
    padded = {name: np.concatenate([array, np.zeros_like(array[:1])]) for name, array in columns.items()}
    return Rollout({"episode_id": np.full(n_steps + 1, number), "observations": episode["observations"], **padded})


def _table(path: Path) -> pa.Table:
    """Return the columns of a file that a data set has; those of Feather are views of the mapped file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.ParquetFile(path).read()  # not read_table: it makes columns of the folders' names
    elif path.suffix in (".feather", ".arrow"):
        with pa.memory_map(str(path)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
    else:
        raise ValueError("its name must end in .feather, .arrow or .parquet")
    names = [name for name in table.column_names if name.split("/")[0] in ("episode_id", "observations", *_STEP_COLUMNS)]
    return table.select(names)


def _files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    one = isinstance(paths, str | os.PathLike)
    found: list[Path] = []
    for path in [Path(paths)] if one else [Path(path) for path in paths]:  # type: ignore[arg-type, union-attr]
        is_data = path.is_dir() and [file for file in path.rglob("*") if file.suffix in (".feather", ".arrow", ".parquet")]
        found += sorted(is_data) if is_data else [path]
    if not found:
        raise ParlError("a data set needs at least one file")
    return found


def _joined(trees: Sequence[Any], order: Array) -> Any:
    if isinstance(trees[0], dict):
        return {name: _joined([tree[name] for tree in trees], order) for name in trees[0]}
    return np.concatenate(trees)[order]
