"""Actors for tests. Without pytest, so that a job that imports them starts fast."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import parl_lite


@parl_lite.remote_class
class Patient:
    """Lives until it is killed."""

    def __init__(self, die: bool = False) -> None:
        if die:
            os._exit(3)

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def echo(self, value):
        return value

    def leave(self, code: int) -> None:
        sys.exit(code)

    def die(self) -> None:
        os._exit(7)

    def start_child(self) -> int:
        return subprocess.Popen(["sleep", "1000"]).pid

    def start_daemon(self) -> int:
        """Start a process that leaves the session, as daemons do."""
        script = "import os\nif os.fork(): os._exit(0)\nos.setsid(); print(os.getpid(), flush=True)\nos.execvp('sleep', ['sleep', '99'])"
        starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        return int(starter.stdout.readline())
