"""What memory and processor time a run takes, and when it is warm: for both sides of `train.py`. Knows Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

WARM_UP = 3.0
"""Seconds of learning before anything is measured."""


def memory_mb(pid: int) -> float:
    """Return the proportional set size of a process and all below it."""
    return sum(_pss_kb(each) for each in _with_children(pid)) / 1024


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and all below it have taken so far."""
    return sum(_ticks(each) for each in _with_children(pid)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in (task / "children").read_text().split():
            yield from _with_children(int(child))


def _pss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
