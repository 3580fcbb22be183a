"""Where a cluster's key is found: given, in the environment, or kept by a node of this user on this machine. Makes none.

A node keeps the key of its cluster in its private folder as `key-PORT` (mode 0600), PORT being the master's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from parl_lite import hostos
from parl_lite.errors import AuthenticationError
from parl_lite.security import ClusterKey

ResultT = TypeVar("ResultT")


def key_file(folder: Path, port: int) -> Path:
    """Return where a node that lives in `folder` keeps the key of the cluster whose master has this port."""
    return folder / f"key-{port}"


def key_for(address: str, given: str | None = None) -> ClusterKey | None:
    """Return the key for the master at a ZeroMQ address, or None when none is known (or none is needed: ipc).

    Raises AuthenticationError for a key that is too short, or a file that others can read.
    """
    if given:
        return ClusterKey(given)
    key = ClusterKey.from_environment()
    if key is not None or not address.startswith("tcp://"):
        return key
    return kept_key(int(address.rpartition(":")[2]))


def with_key_for(address: str, given: str | None, attempt: Callable[[ClusterKey | None], ResultT]) -> ResultT:
    """Return `attempt(key)` with the key for a master; tried again when a master that just started has left one here.

    Raises AuthenticationError when the master refuses the key that is given or found.
    """
    key = key_for(address, given)
    try:
        return attempt(key)
    except AuthenticationError:
        found = key_for(address, given)
        if found is None or (key is not None and key.text == found.text):
            raise
        return attempt(found)


def kept_key(port: int) -> ClusterKey | None:
    """Return the key that the youngest node with a master at this port keeps."""
    kept = [path for path in hostos.runtime_folder().glob(f"*/key-{port}") if path.is_file()]
    kept.sort(key=lambda path: path.stat().st_mtime)
    return ClusterKey.from_file(kept[-1]) if kept else None
