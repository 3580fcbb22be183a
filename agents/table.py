"""A CSV file that grows by rows, and by columns when a row has new ones. Knows no column in particular."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Table:
    """Rows in a file; an existing file is continued."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] = []

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one more row, None as an empty cell."""
        self._columns = self._columns or self._columns_there()
        new = [name for name in row if name not in self._columns]
        if new:
            self._rewrite(self.rows(), [*self._columns, *new])
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def keep(self, wanted: Callable[[Mapping[str, str]], bool]) -> None:
        """Remove the rows that are not wanted, and one that was cut short."""
        rows = [row for row in self.rows() if None not in row.values() and wanted(row)]
        self._rewrite(rows, self._columns_there())

    def rows(self) -> list[dict[str, str]]:
        """Return all rows, as text by column."""
        if not self.path.exists():
            return []
        with open(self.path, newline="") as file:
            return list(csv.DictReader(file))

    def _columns_there(self) -> list[str]:
        if not self.path.exists():
            return []
        with open(self.path, newline="") as file:
            return next(csv.reader(file), [])

    def _rewrite(self, rows: list[dict[str, str]], columns: list[str]) -> None:
        self._columns = columns
        draft = self.path.with_name(self.path.name + ".tmp")
        with open(draft, "w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        draft.replace(self.path)
