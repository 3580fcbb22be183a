"""What master and worker share as processes: parent, signals, the line that says they work. Knows no protocol."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from parl_lite import hostos
from parl_lite.loop import Loop
from parl_lite.machine import Interrupted

logger = logging.getLogger("parl_lite")


class Announcement:
    """The one line on the descriptor that the starter reads; see parl_lite/launch.py."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def works(self, **facts: object) -> None:
        """Say that this process works; only the first word counts."""
        self._say({"pid": os.getpid(), **facts})

    def fails(self, reason: str) -> None:
        """Say why this process cannot work."""
        logger.error(reason)
        self._say({"error": reason})

    def _say(self, line: dict[str, object]) -> None:
        if self._fd is not None:
            try:
                os.write(self._fd, json.dumps(line).encode() + b"\n")
            except BrokenPipeError:
                pass  # the starter no longer waits
            os.close(self._fd)
            self._fd = None


def common_options(command: Any) -> Any:
    """Add the options of every node process to a click command."""
    for option in (
        click.option("--parent", type=int, default=None, help="End when the process with this pid ends."),
        click.option("--key-file", type=click.Path(path_type=Path), help="File with the cluster's key, of mode 0600."),
        click.option("--ready-fd", type=int, default=None, help="Descriptor for the line that says it works."),
    ):
        command = option(command)
    return command


def is_ipc(address: str) -> bool:
    """Return whether the master listens on a file: then the cluster is embedded, and its nodes are not registered."""
    return address.startswith("ipc://")


def log_to_stderr() -> None:
    """Write our own log lines, with times, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def end_on_signals(loop: Loop) -> None:
    """Let SIGTERM and SIGINT end the loop in order."""

    def interrupted(number: int, frame: object) -> None:
        loop.post(Interrupted(f"received {signal.Signals(number).name}"))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupted)


def end_with_parent(loop: Loop, parent: int | None) -> None:
    """Let the end of another process end the loop in order."""
    if parent is None:
        return
    try:
        fd = hostos.open_process(parent)
    except ProcessLookupError:
        loop.post(Interrupted("its owner is gone"))
        return

    def ended() -> Iterable[Interrupted]:
        loop.unwatch(fd)
        os.close(fd)
        return [Interrupted("its owner is gone")]

    loop.watch(fd, ended)
