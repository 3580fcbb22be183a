"""Draws the learning curve of a run from its progress.csv. Needs matplotlib, which it imports when it draws."""

from __future__ import annotations

import csv
from pathlib import Path


def draw_curve(progress_csv: Path, picture: Path, title: str, target: float | None = None) -> None:
    """Write a PNG of the mean return and the policy lag over environment steps.

    Args:
        progress_csv: with columns env_steps, return_mean (empty before the first episode ended) and policy_lag.
        picture: the file to write.
        title: above the curve.
        target: drawn as a line, where there is one.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with open(progress_csv, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["return_mean"]]
    steps = [int(row["env_steps"]) for row in rows]
    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot(steps, [float(row["return_mean"]) for row in rows], color="tab:blue")
    if target is not None:
        upper.axhline(target, color="tab:gray", linestyle="--", linewidth=1, label=f"target {target:g}")
        upper.legend(loc="lower right")
    upper.set(title=title, ylabel="mean return of\nthe last 100 episodes")
    lower.plot(steps, [float(row["policy_lag"] or "nan") for row in rows], color="tab:orange")
    lower.set(xlabel="environment steps", ylabel="policy lag\n(updates)", ylim=(0, None))
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=120)
