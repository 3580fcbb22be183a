"""Figures for TensorBoard, in the folder of `parl_lite.utils.logger`. No file is made before the first figure.

One process writes into a folder: another that comes to the same one gets a sub-folder of its own, or TensorBoard would
draw one line through the points of both.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from pathlib import Path
from typing import IO, Any

from parl_lite.utils import logger


class _Summary:
    """The one writer of this process; opened at the first figure, and again when the logger's folder changes."""

    def __init__(self) -> None:
        self._folder = ""
        self._writer: Any = None
        self._lock: IO[str] | None = None
        self._counts: Counter[str] = Counter()

    def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
        """Write one point.

        Args:
            value: a number, or an array or tensor that holds one; NaN stays NaN.
            global_step: where it is drawn; None counts the points of this tag from 0.
        """
        self._open().add_scalar(tag, float(value), self._step(tag, global_step))

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Write the distribution of an array or tensor; `global_step` as in `add_scalar`."""
        self._open().add_histogram(tag, values, self._step(tag, global_step))

    def flush(self) -> None:
        """Write what tensorboardX's thread has by now; it does so every second by itself, and `close` waits for all."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the file; the next figure opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _step(self, tag: str, global_step: int | None) -> int:
        step = self._counts[tag] if global_step is None else int(global_step)
        self._counts[tag] = step + 1
        return step

    def _open(self) -> Any:
        folder = logger.get_dir() or logger.auto_set_dir()
        if self._writer is None or folder != self._folder:
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise ImportError("summary needs tensorboardX: pip install 'parl_lite[tensorboard]'") from error
            self.close()
            self._folder = folder
            self._writer = SummaryWriter(logdir=str(self._own_folder(Path(folder))), flush_secs=1)
        return self._writer

    def _own_folder(self, folder: Path) -> Path:
        """Return `folder` if no other process writes there, and a sub-folder otherwise."""
        self._lock = open(folder / ".summary.lock", "w")  # noqa: SIM115  held for as long as the writer is open
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return folder / f"process-{os.getpid()}"
        return folder


_summary = _Summary()

add_scalar, add_histogram = _summary.add_scalar, _summary.add_histogram
flush, close = _summary.flush, _summary.close
