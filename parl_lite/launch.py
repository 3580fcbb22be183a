"""Starts the processes of a cluster and hears when they work. Knows their module names, never their code.

A process is given a descriptor on which it writes one line of JSON: {"address": ..., "pid": ...} when it was seen to
work, or {"error": ...} when it cannot. A line that never comes, or a process that ends before, is an error too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parl_lite import hostos
from parl_lite.errors import ParlError


@dataclass
class Node:
    """A process that was started here."""

    role: str
    process: subprocess.Popen[bytes]
    ready_fd: int
    log_path: Path | None
    """Where its output goes; None: where ours goes."""

    def await_ready(self, deadline: float) -> dict[str, Any]:
        """Return what the process says once it works; raises ParlError when it does not by `deadline` (monotonic)."""
        data = b""
        try:
            while not data.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not hostos.readable(self.ready_fd, left):
                    raise ParlError(f"the {self.role} process did not begin to work in time{self._last_words()}.")
                chunk = os.read(self.ready_fd, 65536)
                if not chunk:
                    raise ParlError(self._why_it_ended())
                data += chunk
        finally:
            os.close(self.ready_fd)
            self.ready_fd = -1
        said: dict[str, Any] = json.loads(data)
        if "error" in said:
            raise ParlError(said["error"])
        return said

    def end(self, grace: float) -> None:
        """Ask it to end, kill it after `grace` seconds, and reap it."""
        if self.ready_fd >= 0:
            os.close(self.ready_fd)
            self.ready_fd = -1
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def leave_running(self) -> None:
        """Let it live on when this process ends: it is not waited for, and subprocess shall not complain of that."""
        self.process.returncode = 0

    def _why_it_ended(self) -> str:
        return f"the {self.role} process ended with code {self.process.wait()} before it worked{self._last_words()}."

    def _last_words(self) -> str:
        """Return the last line of its log as the end of a sentence; the log itself may be gone soon."""
        try:
            lines = self.log_path.read_text(errors="replace").split("\n") if self.log_path is not None else []
        except OSError:
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; its last words are: {last.rstrip('.')}" if last else ""


def launch(module: str, arguments: Sequence[str], folder: Path, log_path: Path | None, *, detached: bool = True) -> Node:
    """Start `python -m module` in a folder of ours, deaf to the terminal's Ctrl-C when detached.

    Its output goes to the log file; where ours goes when that is None.
    """
    read, write = os.pipe()
    try:
        with nullcontext(None) if log_path is None else open(log_path, "ab") as log:
            process = subprocess.Popen(
                [*python_command(module), *arguments, "--ready-fd", str(write)],
                cwd=folder,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[write],
                start_new_session=detached,
            )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return Node(module.rpartition(".")[2], process, read, log_path)


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of ours without the user's folder on sys.path (3.10: see child's cwd)."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe, "-m", module]


def child_environment() -> dict[str, str]:
    """Return the environment of a child that can import this very parl_lite, even from a plain checkout."""
    environment = dict(os.environ)
    home = str(Path(__file__).resolve().parent.parent)
    if not home.rstrip("/").endswith(("site-packages", "dist-packages")):
        environment["PARL_LITE_PYTHONPATH"] = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH", "")]))
    return environment


def restore_environment() -> None:
    """Take back, in a job, what `child_environment` added for us, so that the user's own children do not see it."""
    if "PARL_LITE_PYTHONPATH" in os.environ:
        before = os.environ.pop("PARL_LITE_PYTHONPATH")
        if before:
            os.environ["PYTHONPATH"] = before
        else:
            os.environ.pop("PYTHONPATH", None)
