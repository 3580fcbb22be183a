"""Tables of arrays in a folder of Arrow files, whole or not at all. Knows Arrow and files, no buffer.

A folder holds `replay.json` and one Arrow IPC file a table, named anew for each save. The file of facts is replaced last
and names the files of its save, so a reader, or a crash at any moment, finds the old save or the new one. Each file can
be mapped into memory with `Rollout.load`, or read by any Arrow tool.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite.columns import from_column, nest
from parl_lite.errors import ParlError
from parl_lite.rollout import Rollout

Array = np.ndarray[Any, Any]
Tables = Mapping[str, Mapping[str, Array]]
Read = Callable[[str, Mapping[str, Array]], None]
"""Takes the name of a table and arrays (capacity, ...) by column, and fills their first rows."""

FORMAT = 1
_FACTS = "replay.json"


def write_folder(folder: str | os.PathLike[str], tables: Tables, document: Mapping[str, Any]) -> None:
    """Write tables of arrays (n, ...) by column name, and a document of plain values, to a folder; makes it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    files = {name: f"{name}-{token}.arrow" for name in tables}
    for name, columns in tables.items():
        Rollout(_flat(columns)).save(folder / files[name])
        _sync(folder / files[name])
    draft = folder / f".{token}.tmp"
    draft.write_text(json.dumps({"format": FORMAT, "files": files, **document}))
    _sync(draft)
    os.replace(draft, folder / _FACTS)
    _sync(folder)
    for path in folder.glob("*.arrow"):
        if path.name not in files.values():
            path.unlink(missing_ok=True)


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Read]:
    """Return the document that `write_folder` got, and what fills arrays from its tables.

    Raises:
        ParlError: there is none, or it is of a newer format.
    """
    path = Path(folder) / _FACTS
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ParlError(f"{folder} holds no saved replay buffer: {error}") from error
    if document["format"] > FORMAT:
        raise ParlError(f"{path} has format {document['format']}, and this parl_lite reads up to {FORMAT}: update it")

    def read(table: str, targets: Mapping[str, Array]) -> None:
        _fill(Path(folder) / document["files"][table], targets)

    return document, read


def _fill(path: Path, targets: Mapping[str, Array]) -> None:
    """Copy the columns of a mapped file into the first rows of arrays, batch by batch."""
    try:
        with pa.memory_map(str(path)) as mapped:
            reader = pa.ipc.open_file(mapped)
            start = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                for name, target in targets.items():
                    field = batch.schema.field(name)
                    target[start : start + len(batch)] = from_column(field, batch.column(name))
                start += len(batch)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise ParlError(f"{path} cannot be read as part of a saved replay buffer: {error}") from error


def _flat(columns: Mapping[str, Array]) -> dict[str, Any]:
    """Return nested dicts of columns, as a Rollout takes them, from columns by path."""
    return nest(columns.keys(), columns.values())


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
