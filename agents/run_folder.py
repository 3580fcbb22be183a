"""The folder of a run: its settings, and checkpoints that a run killed at any moment goes on from. Knows no algorithm.

settings.json, progress.csv, ...    see records.py
checkpoints/0000012345.ckpt         by updates; the last two are kept
checkpoints/best.ckpt               of the best score so far
checkpoints/replay/                 of the wiring replay, on request
agent.ckpt                          at the end: what `Agent.restore` reads
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parl_lite import checkpoint
from parl_lite.errors import ParlError, SerializationError

logger = logging.getLogger("parl_lite.agents")

KEPT = 2
"""Checkpoints that are kept: one more than is needed, should the disk fail."""
FREE = (
    *("total_steps", "checkpoint_interval", "eval_interval", "eval_episodes", "eval_sampled", "save_replay"),
    *("n_actors", "n_learners", "n_threads", "env_threads", "device"),
    *("calls_in_flight", "prefetch", "inference_batch", "inference_wait"),
)
"""Settings that may change when a run is resumed: how long it goes on, what it writes, and where the same is computed.

Schedules are functions of the steps done and of total_steps. With another total_steps they go on where they would stand in a
run of that length: a learning rate that had fallen to zero after 100,000 steps begins at half its height with 200,000."""


class RunFolder:
    """Checkpoints and settings of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.best_score: float | None = None

    def save(self, n_updates: int, state: Mapping[str, Any], score: float | None) -> None:
        """Write a checkpoint, atomically, and remove those that are too old; keep it as the best if its score is."""
        state = {"kind": "run", **state, "best_score": self._best(score)}
        if score is not None and score == state["best_score"] != self.best_score:
            checkpoint.save(self.checkpoints / "best.ckpt", state)
        checkpoint.save(self._path_of(n_updates), state)
        self.best_score = state["best_score"]
        for old in self._numbered()[KEPT:]:
            old.unlink()

    def newest(self) -> dict[str, Any]:
        """Return the newest checkpoint that can be read; raises ParlError if there is none."""
        for path in self._numbered():
            try:
                state: dict[str, Any] = checkpoint.load(path)
            except SerializationError as error:
                logger.warning("a checkpoint is passed over: %s", error)
                continue
            self.best_score = state["best_score"]
            return state
        raise ParlError(f"{self.path} has no checkpoint to go on from: start the run without --resume.")

    def clear(self, *, overwrite: bool) -> None:
        """Make room for a new run; raises ParlError if one that can be resumed is there, unless `overwrite`."""
        unfinished = self._numbered() and not (self.path / "summary.json").exists()
        if unfinished and not overwrite:
            raise ParlError(
                f"{self.path} has a run that was cut short: go on with --resume, replace it with --overwrite, "
                f"or choose another --logdir."
            )
        shutil.rmtree(self.checkpoints / "replay", ignore_errors=True)
        for path in [*self._numbered(), self.checkpoints / "best.ckpt", self.path / "agent.ckpt"]:
            path.unlink(missing_ok=True)

    def saved_settings(self, algo: str) -> dict[str, Any]:
        """Return the settings of the run that is here; raises ParlError if there is none, or one of another algorithm."""
        try:
            content: dict[str, Any] = json.loads((self.path / "settings.json").read_text())
        except FileNotFoundError:
            raise ParlError(f"{self.path} has no run to go on with: start one without --resume.") from None
        if content.pop("algo") != algo:
            raise ParlError(f"{self.path} has a run of another algorithm than {algo}: choose another --logdir.")
        return content

    def check_same(self, algo: str, settings: Any) -> None:
        """Raise ParlError that names the settings in which a run to be resumed differs from the one that is here."""
        saved, now = self.saved_settings(algo), asdict(settings)
        names = [name for name in {**saved, **now} if name not in FREE and saved.get(name) != now.get(name)]
        if names:
            changes = ", ".join(f"{name} was {saved.get(name)!r} and is {now.get(name)!r}" for name in names)
            free = [name for name in FREE if name in now]
            raise ParlError(
                f"{self.path} cannot be resumed with other settings: {changes}. Leave these out, or start anew; only "
                f"{', '.join(free[:-1])} and {free[-1]} may change."
            )

    def _best(self, score: float | None) -> float | None:
        scores = [each for each in (self.best_score, score) if each is not None]
        return max(scores, default=None)

    def _path_of(self, n_updates: int) -> Path:
        return self.checkpoints / f"{n_updates:010}.ckpt"

    def _numbered(self) -> list[Path]:
        """Return the checkpoints, the newest first."""
        return sorted(self.checkpoints.glob("[0-9]*.ckpt"), reverse=True)
