"""Starts the processes of a cluster and hears when they work. Knows their module names, never their code.

A process is given a descriptor on which it writes one line of JSON: {"address": ..., "pid": ...} when it was seen working, or
{"error": ...} when it cannot. A line that never comes, or a process that ends before, is an error too.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parl_lite.errors import ParlError


@dataclass
class Node:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    ready_fd: int
    log_path: Path

    def await_ready(self, deadline: float) -> dict[str, str]:
        """Return what the process says once it works; raises ParlError when it does not by `deadline` (monotonic)."""
        data = b""
        try:
            while not data.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self.ready_fd], [], [], left)[0]:
                    raise ParlError(f"{self._name()} did not begin to work in time; its log is {self.log_path}.")
                chunk = os.read(self.ready_fd, 65536)
                if not chunk:
                    raise ParlError(self._why_it_ended())
                data += chunk
        finally:
            os.close(self.ready_fd)
            self.ready_fd = -1
        said: dict[str, str] = json.loads(data)
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

    def _name(self) -> str:
        return f"the {str(self.process.args[-1] if isinstance(self.process.args, list) else '')} process"

    def _why_it_ended(self) -> str:
        code = self.process.wait()
        try:
            tail = self.log_path.read_text(errors="replace").strip().splitlines()[-1:]
        except OSError:
            tail = []
        return f"a process of the cluster ended with code {code} before it worked: {' '.join(tail) or self.log_path}"


def launch(module: str, arguments: Sequence[str], folder: Path, log_path: Path, *, detached: bool = True) -> Node:
    """Start `python -m module` in a folder of ours, output to a log file, deaf to the terminal's Ctrl-C when detached."""
    read, write = os.pipe()
    try:
        with open(log_path, "ab") as log:
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
    return Node(process, read, log_path)


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
