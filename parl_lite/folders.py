"""Private folders of running clusters: sockets, logs, unpacked code. Swept when nobody lives in them any more.

Whoever lives in a folder holds a shared lock on its file `lock`; the kernel lets go of it however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parl_lite import hostos


def make_folder(prefix: str) -> tuple[Path, int]:
    """Make a new folder of mode 0700 and move in; return it and the descriptor to close on moving out.

    Folders that nobody lives in are removed first.
    """
    base = hostos.runtime_folder()
    with _alone_in(base):
        sweep(base)
        folder = base / f"{prefix}{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        return folder, move_in(folder)


def move_in(folder: Path) -> int:
    """Keep a folder from being swept until the returned descriptor is closed or this process ends."""
    fd = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def remove_if_empty_of_life(folder: Path) -> None:
    """Remove a folder unless somebody (else) lives in it."""
    with _alone_in(folder.parent):
        _remove_unless_locked(folder)


def sweep(base: Path) -> None:
    """Remove every folder that nobody lives in."""
    for lock in base.glob("*/lock"):
        _remove_unless_locked(lock.parent)


def _remove_unless_locked(folder: Path) -> None:
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # somebody lives there
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)


@contextmanager
def _alone_in(base: Path) -> Iterator[None]:
    """One process at a time makes and removes folders, so that none is swept between its making and its first lock."""
    fd = os.open(base / ".making", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
