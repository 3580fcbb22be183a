"""What a run leaves behind: settings.json, progress.csv, summary.json, curve.png in one folder. Knows no algorithm.

Returns are raw and of training episodes, with exploration. Steps are steps of environments; autoreset rows are none.
"""

from __future__ import annotations

import csv
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .curve import draw_curve

logger = logging.getLogger("parl_lite.agents")

WINDOW = 100
"""Episodes in a mean return."""
ROW_INTERVAL = 0.2
"""Seconds between two rows of progress.csv."""
STALE_LAG = 200
"""A mean policy lag of so many updates is warned of: the weights do not reach the actors, or they are far too slow."""

Figures = dict[str, float | None]


class RunRecord:
    """Counts, writes and sums up one run.

    Args:
        logdir: folder of the run; files of an earlier run there are replaced.
        algo: name of the algorithm.
        settings: a dataclass with at least `env` and `seed`.
        target: mean return of 100 episodes at which the run counts as solved.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        logdir: str | Path,
        algo: str,
        settings: Any,
        target: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.logdir = Path(logdir)
        self.algo = algo
        self.settings = settings
        self.target = target
        self.env_steps = 0
        self.n_updates = 0
        self.episodes = 0
        self.solved_at: int | None = None
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lag_sum = 0.0
        self._metrics: dict[str, float] = {}
        self._clock = clock
        self._start = clock()
        self._next_row = self._start
        self._columns: list[str] = []
        self._prepare_folder()

    @property
    def solved(self) -> bool:
        """Whether the target was reached."""
        return self.solved_at is not None

    @property
    def return_mean(self) -> float | None:
        """Mean return of the last 100 episodes (fewer at the start), None before the first."""
        return float(np.mean(self._returns)) if self._returns else None

    def update(self, batch: Mapping[str, np.ndarray[Any, Any]], lag: float, metrics: Mapping[str, float]) -> None:
        """Count one update: its rollout (columns as in `collector.py`), its mean policy lag, what `learn` returned."""
        returns = batch["episode_return"][~np.isnan(batch["episode_return"])]
        self.env_steps += int(batch["valid"].sum())
        self.n_updates += 1
        self.episodes += len(returns)
        self._returns.extend(returns.tolist())
        self._lag_sum += lag
        self._metrics = {**metrics, "policy_lag": lag}
        if lag > STALE_LAG and self.n_updates % STALE_LAG == 1:
            logger.warning("policy lag is %.0f updates: do the weights reach the actors?", lag)
        full = len(self._returns) == WINDOW
        if self.target is not None and not self.solved and full and (self.return_mean or 0.0) >= self.target:
            self.solved_at = self.env_steps
        if self._clock() >= self._next_row:
            self.write_row()

    def figures(self) -> Figures:
        """Return how the run stands now, by name."""
        seconds = self._clock() - self._start
        return {
            "env_steps": self.env_steps,
            "seconds": round(seconds, 3),
            "steps_per_second": round(self.env_steps / seconds, 1) if seconds > 0 else None,
            "episodes": self.episodes,
            "return_mean": self.return_mean,
            "policy_lag": self._metrics.get("policy_lag"),
        }

    def write_row(self) -> None:
        """Append how the run stands now to progress.csv."""
        self._next_row = self._clock() + ROW_INTERVAL
        row = {**self.figures(), "updates": self.n_updates, **self._metrics}
        self._columns = self._columns or list(row)
        with open(self.logdir / "progress.csv", "a", newline="") as file:
            writer = csv.DictWriter(file, self._columns, extrasaction="ignore")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)

    def finish(self, stopped: str, **more: Any) -> dict[str, Any]:
        """Write the last row, summary.json and curve.png, and return the summary.

        Args:
            stopped: why the run ended, such as "solved", "total_steps" or "interrupted".
            more: further figures for the summary.
        """
        if self.n_updates:
            self.write_row()
        figures = self.figures()
        summary = {
            "algo": self.algo,
            "env": self.settings.env,
            "seed": self.settings.seed,
            **{name: figures[name] for name in ("env_steps", "seconds", "steps_per_second", "return_mean", "episodes")},
            "solved_at": self.solved_at,
            "target": self.target,
            "policy_lag_mean": self._lag_sum / self.n_updates if self.n_updates else None,
            "updates": self.n_updates,
            "stopped": stopped,
            **more,
        }
        _write_json(self.logdir / "summary.json", summary)
        self._draw()
        return summary

    def _prepare_folder(self) -> None:
        self.logdir.mkdir(parents=True, exist_ok=True)
        for name in ("progress.csv", "summary.json", "curve.png"):
            (self.logdir / name).unlink(missing_ok=True)
        _write_json(self.logdir / "settings.json", {"algo": self.algo, **asdict(self.settings)})

    def _draw(self) -> None:
        if not self.n_updates:
            return
        title = f"{self.algo} on {self.settings.env}, seed {self.settings.seed}"
        try:
            draw_curve(self.logdir / "progress.csv", self.logdir / "curve.png", title, self.target)
        except ImportError:
            logger.warning("no curve.png without matplotlib: pip install 'parl_lite[plot]'")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def summary_text(summary: Mapping[str, Any], logdir: Path) -> str:
    """Return a few lines that say how a run ended and where its files are."""
    mean = summary["return_mean"]
    reached = "no episode ended" if mean is None else f"mean return of the last {WINDOW} episodes {mean:.1f}"
    target = "" if summary["target"] is None else f" (target {summary['target']:g})"
    ends = {
        "solved": f"solved after {summary['solved_at'] or 0:,} steps",
        "total_steps": "out of steps" if summary["target"] is None else "not solved: out of steps",
        "interrupted": "interrupted",
    }
    lag = summary["policy_lag_mean"]
    return (
        f"{summary['algo']} on {summary['env']}, seed {summary['seed']}: {ends[summary['stopped']]}\n"
        f"  {summary['env_steps']:,} steps, {summary['episodes']:,} episodes, {summary['updates']:,} updates "
        f"in {summary['seconds']:.1f} s: {summary['steps_per_second'] or 0:,.0f} steps/s\n"
        f"  {reached}{target}, policy lag {0.0 if lag is None else lag:.1f} updates\n"
        f"  files in {logdir}: {', '.join(sorted(path.name for path in logdir.iterdir() if path.is_file()))}"
    )
