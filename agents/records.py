"""What a run leaves behind: settings.json, progress.csv, summary.json, curve.png in one folder. Knows no algorithm.

Returns are raw and of training episodes, with exploration; `eval_return_mean` is of evaluation episodes. Steps are steps
of environments; autoreset rows are none.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .curve import draw_curve
from .table import Table
from .updates import Update

logger = logging.getLogger("parl_lite.agents")

WINDOW = 100
"""Episodes in a mean return."""
ROW_INTERVAL = 0.2
"""Seconds between two rows of progress.csv in the first minutes; later a thousandth of the time that the run has taken so
far, so that the file of a long run stays small."""
STALE_LAG = 200
"""A mean policy lag of so many updates is warned of: the weights do not reach the actors, or they are far too slow."""
STATE = "env_steps n_updates episodes solved_at seconds eval_return_mean _lag_sum _learner_waited _actor_waited _actor_seconds"

Figures = dict[str, float | None]


class RunRecord:
    """Counts, writes and sums up one run.

    Args:
        logdir: folder of the run; files of an earlier run there are replaced, unless it is resumed.
        algo: name of the algorithm.
        settings: a dataclass with at least `env` and `seed`.
        target: mean return of 100 episodes at which the run counts as solved.
        clock: seconds that never go back.
        resumed: what `state` returned when the run was interrupted.
    """

    def __init__(
        self,
        logdir: str | Path,
        algo: str,
        settings: Any,
        target: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        resumed: Mapping[str, Any] | None = None,
    ) -> None:
        self.logdir = Path(logdir)
        self.algo = algo
        self.settings = settings
        self.target = target
        self.env_steps = 0
        self.n_updates = 0
        self.episodes = 0
        self.solved_at: int | None = None
        self.eval_return_mean: float | None = None
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[float] = deque(maxlen=WINDOW)
        self._lag_sum = self._learner_waited = self._actor_waited = self._actor_seconds = 0.0
        self._metrics: dict[str, float] = {}
        self._evaluation: Figures = {}
        self._clock = clock
        self._seconds_before = 0.0
        self._table = Table(self.logdir / "progress.csv")
        self.writers: list[Callable[[int, Figures], None]] = []
        self._begin(resumed)
        self._start = self._next_row = clock()

    @property
    def solved(self) -> bool:
        """Whether the target was reached."""
        return self.solved_at is not None

    @property
    def _at_target(self) -> bool:
        """Whether the mean return of 100 episodes is as high as it should be."""
        return self.target is not None and len(self._returns) == WINDOW and float(np.mean(self._returns)) >= self.target

    @property
    def seconds(self) -> float:
        """How long the run has taken, all its parts together."""
        return self._seconds_before + self._clock() - self._start

    @property
    def return_mean(self) -> float | None:
        """Mean return of the last 100 episodes (fewer at the start), None before the first."""
        return float(np.mean(self._returns)) if self._returns else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within `with`, time does not count: an evaluation is no training."""
        began = self._clock()
        try:
            yield
        finally:
            self._start += self._clock() - began

    def update(self, update: Update) -> None:
        """Count one update of the learner."""
        self.env_steps += update.env_steps
        self.n_updates += update.n_updates
        self.episodes += len(update.episode_returns)
        self._returns.extend(update.episode_returns.tolist())
        self._lengths.extend(update.episode_lengths.tolist())
        self._lag_sum += update.lag * update.n_updates
        self._learner_waited += update.learner_waited
        self._actor_waited += update.actor_waited
        self._actor_seconds += update.actor_seconds
        if update.n_updates:
            self._metrics = {**update.metrics, "policy_lag": update.lag}
            self._look_for_trouble(update.lag)
        if not self.solved and self._at_target:
            self.solved_at = self.env_steps
        if self._clock() >= self._next_row:
            self.write_row()

    def evaluated(self, figures: Figures) -> None:
        """Take note of an evaluation: `eval_return_mean` and others, which stand in the rows from now on."""
        self.eval_return_mean = figures["eval_return_mean"]
        self._evaluation = figures
        self.write_row()

    @property
    def score(self) -> float | None:
        """What the best checkpoint is best in: evaluations where there were any, else returns in training."""
        return self.return_mean if self.eval_return_mean is None else self.eval_return_mean

    def figures(self) -> Figures:
        """Return how the run stands now, by name."""
        seconds = self.seconds
        return {
            "env_steps": self.env_steps,
            "seconds": round(seconds, 3),
            "steps_per_second": round(self.env_steps / seconds, 1) if seconds > 0 else None,
            "episodes": self.episodes,
            "return_mean": self.return_mean,
            "policy_lag": self._metrics.get("policy_lag"),
        }

    def shares(self) -> Figures:
        """Return which part of their time the learner and the actors have waited for each other."""
        return {
            "learner_idle_share": _share(self._learner_waited, self.seconds),
            "actor_wait_share": _share(self._actor_waited, self._actor_seconds),
        }

    def write_row(self) -> None:
        """Append how the run stands now to progress.csv, and tell the other writers."""
        self._next_row = self._clock() + max(ROW_INTERVAL, self.seconds / 1000)
        row: Figures = {
            **self.figures(),
            "updates": self.n_updates,
            "episode_length_mean": float(np.mean(self._lengths)) if self._lengths else None,
            "eval_return_mean": self.eval_return_mean,
            **self.shares(),
            **self._metrics,
            **self._evaluation,
        }
        self._table.append(row)
        for write in self.writers:
            write(self.env_steps, row)

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
            "eval_return_mean": self.eval_return_mean,
            "policy_lag_mean": self._lag_sum / self.n_updates if self.n_updates else None,
            **self.shares(),
            "updates": self.n_updates,
            "stopped": stopped,
            **more,
        }
        write_json(self.logdir / "summary.json", summary)
        self._draw()
        return summary

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs to count on."""
        own = {name: getattr(self, name) for name in STATE.split()}
        return {**own, "returns": list(self._returns), "lengths": list(self._lengths)}

    def _begin(self, resumed: Mapping[str, Any] | None) -> None:
        self.logdir.mkdir(parents=True, exist_ok=True)
        for name in ("summary.json", "curve.png", *(["progress.csv"] if resumed is None else [])):
            (self.logdir / name).unlink(missing_ok=True)
        write_json(self.logdir / "settings.json", {"algo": self.algo, **asdict(self.settings)})
        if resumed is None:
            return
        for name in STATE.split():
            setattr(self, "_seconds_before" if name == "seconds" else name, resumed[name])
        self._returns.extend(resumed["returns"])
        self._lengths.extend(resumed["lengths"])
        if not self._at_target:  # which was lower before
            self.solved_at = None
        self._table.keep(lambda row: int(row["updates"]) <= self.n_updates)

    def _look_for_trouble(self, lag: float) -> None:
        if lag > STALE_LAG and self.n_updates % STALE_LAG == 1:
            logger.warning("policy lag is %.0f updates: do the weights reach the actors?", lag)

    def _draw(self) -> None:
        if not self.n_updates:
            return
        title = f"{self.algo} on {self.settings.env}, seed {self.settings.seed}"
        try:
            draw_curve(self.logdir / "progress.csv", self.logdir / "curve.png", title, self.target)
        except ImportError:
            logger.warning("no curve.png without matplotlib: pip install 'parl_lite[plot]'")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file for people and programs."""
    path.write_text(json.dumps(content, indent=2) + "\n")


def summary_text(summary: Mapping[str, Any], logdir: Path) -> str:
    """Return a few lines that say how a run ended and where its files are."""
    mean = summary["return_mean"]
    reached = "no episode ended" if mean is None else f"mean return of the last {WINDOW} episodes {mean:.1f}"
    target = "" if summary["target"] is None else f" (target {summary['target']:g})"
    evaluated = summary["eval_return_mean"]
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
        f"  {reached}{target}, {'' if evaluated is None else f'evaluation {evaluated:.1f}, '}"
        f"policy lag {0.0 if lag is None else lag:.1f} updates\n"
        f"  files in {logdir}: {', '.join(sorted(path.name for path in logdir.iterdir() if path.is_file()))}"
    )


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, part / whole), 4) if whole > 0 else None
