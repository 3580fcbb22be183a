"""Rows of figures to a CSV file. Knows nothing but the standard library."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any


class CSVLogger:
    """Write dicts as rows; the first one's keys are the columns. Threads may share it.

    Args:
        output_file: the file; an earlier one of that name is replaced.
    """

    def __init__(self, output_file: str | os.PathLike[str]) -> None:
        self._file = open(output_file, "w", newline="", encoding="utf-8")  # noqa: SIM115  closed by close()
        self._writer: csv.DictWriter[str] | None = None
        self._lock = threading.Lock()  # guards the writer and the file, for all threads that call log_dict

    def log_dict(self, result: Mapping[str, Any]) -> None:
        """Append one row; raises ValueError when its keys are not those of the first."""
        with self._lock:
            if self._writer is None:
                self._writer = csv.DictWriter(self._file, list(result), lineterminator="\n")
                self._writer.writeheader()
            if set(result) != set(self._writer.fieldnames):
                raise ValueError(f"the columns are {list(self._writer.fieldnames)}, and cannot become {list(result)}")
            self._writer.writerow(result)

    def flush(self) -> None:
        """Make sure that all rows are in the file."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """Close the file; closing it twice is harmless."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> CSVLogger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
