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

    def touch(self, path: str) -> None:
        open(path, "w").close()

    def leave(self, code: int) -> None:
        sys.exit(code)

    def die(self) -> None:
        os._exit(7)

    def start_child(self) -> int:
        return subprocess.Popen(["sleep", "1000"]).pid

    def start_daemon(self) -> int:
        """Start a process that leaves the session, as daemons do."""
        lines = ["import os", "if os.fork(): os._exit(0)", "os.setsid()", "print(os.getpid(), flush=True)"]
        script = "\n".join([*lines, "os.execvp('sleep', ['sleep', '1000'])"])
        starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        return int(starter.stdout.readline())


@parl_lite.remote_class
class Ledger:
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.entries: list = []
        self.version = -1

    def add(self, entry):
        self.entries.append(entry)
        return entry

    def total(self) -> int:
        return len(self.entries)

    def set_weights(self, version: int) -> None:
        self.version = version

    def sample(self) -> int:
        return self.version

    def wait_for(self, path: str) -> str:
        """Return when somebody writes to a named pipe, with what was written."""
        with open(path) as pipe:
            return pipe.read()

    def pid(self) -> int:
        return os.getpid()


@parl_lite.remote_class
class Printer:
    """Writes to its output in every way."""

    def say(self, text: str) -> None:
        print(text)

    def write_by_c(self, text: str) -> None:
        """Print by C code, without a line's end and without a flush, as libraries do."""
        import ctypes

        ctypes.CDLL(None).printf(text.encode())

    def say_by_child(self, text: str) -> None:
        subprocess.run(["echo", text], check=True)

    def crash_after(self, text: str) -> None:
        """Die by a fault of memory, right after a print without a line's end."""
        import ctypes

        print(text, end="")
        ctypes.string_at(0)

    def die_after(self, text: str) -> None:
        print(text, end="")
        os._exit(9)

    def log_path(self) -> str:
        return os.readlink("/proc/self/fd/1")

    def flood(self, n_lines: int) -> None:
        for i in range(n_lines):
            print(f"line {i} {'x' * 80}")


@parl_lite.remote_class
class Threads:
    """Tells how many threads its libraries would use."""

    def variables(self) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

    def of_torch(self) -> int:
        import torch

        return torch.get_num_threads()

    def of_blas(self) -> list[int]:
        import numpy  # noqa: F401
        import threadpoolctl

        return [library["num_threads"] for library in threadpoolctl.threadpool_info()]


@parl_lite.remote_class(max_memory=200)
class Eater:
    """Uses memory."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def grow(self, megabytes: int) -> int:
        self.kept.append(bytearray(b"x" * (megabytes * 1024 * 1024)))
        return len(self.kept)

    def grow_in_child(self, megabytes: int) -> None:
        script = f"import time; kept = bytearray(b'x' * ({megabytes} * 1024 * 1024)); time.sleep(100)"
        subprocess.run([sys.executable, "-c", script], check=False)

    def pause(self, seconds: float) -> str:
        time.sleep(seconds)
        return "here"
