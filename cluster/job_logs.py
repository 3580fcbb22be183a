"""Log files of jobs on this machine: found by actor or job, read, followed while they grow. Knows no process.

runtime folder/w1a2b3c4d/logs/Actor-3f2a1b.7.log    and, once it grew large, its older part .log.old
runtime folder/w1a2b3c4d/j3f2a1b.7                  the job's socket, which is there as long as the job is
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from parl_lite import hostos

_READ_AT_ONCE = 64 * 1024


def find(name: str) -> list[Path]:
    """Return the logs of an actor's class or of a job id, the newest first."""
    logs = hostos.runtime_folder().glob("*/logs/*.log")
    return sorted((path for path in logs if name in _names(path)), key=_last_written, reverse=True)


def known_names() -> list[str]:
    """Return the names of actors that have logs here."""
    return sorted({_names(path)[0] for path in hostos.runtime_folder().glob("*/logs/*.log")})


def read(path: Path) -> Iterator[bytes]:
    """Yield all that is kept of a log, the older part first."""
    for part in (path.with_name(path.name + ".old"), path):
        try:
            with open(part, "rb") as file:
                yield from iter(lambda: file.read(_READ_AT_ONCE), b"")
        except FileNotFoundError:
            continue


def follow(path: Path, wait: Callable[[], object]) -> Iterator[bytes]:
    """Yield what is in a log and what comes, until its job has ended; `wait` is called when there is nothing new."""
    file = open(path, "rb")  # noqa: SIM115 - another takes its place when the log starts anew
    try:
        while True:
            over = not _lives(path)
            yield from iter(lambda: file.read(_READ_AT_ONCE), b"")  # noqa: B023 - read at once
            if _started_anew(path, file.fileno()):
                file.close()
                file = open(path, "rb")  # noqa: SIM115
            elif over:
                return
            else:
                wait()
    finally:
        file.close()


def _names(path: Path) -> tuple[str, str]:
    """Return (actor, job) of a log."""
    actor, _, job = path.stem.rpartition("-")
    return actor, job


def _last_written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _lives(path: Path) -> bool:
    return (path.parent.parent / f"j{_names(path)[1]}").exists()


def _started_anew(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino != os.fstat(fd).st_ino
    except OSError:
        return False
