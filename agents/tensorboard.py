"""Writes the figures of a run for TensorBoard, where tensorboardX is installed. Knows no figure in particular."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """A writer of figures; a context manager. Without tensorboardX it does nothing.

    Args:
        folder: of the event files.
        wanted: without, it does nothing either.
        first_step: points of an earlier part of the run from here on are hidden.
    """

    def __init__(self, folder: Path, first_step: int = 0, *, wanted: bool = True) -> None:
        self._writer: Any = None
        if not wanted:
            return
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            return
        self._writer = SummaryWriter(str(folder), purge_step=first_step or None)

    def write(self, env_steps: int, figures: Mapping[str, float | None]) -> None:
        """Write a point of each figure that has a value."""
        for name, value in figures.items() if self._writer is not None else ():
            if value is not None:
                self._writer.add_scalar(name, value, env_steps)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
