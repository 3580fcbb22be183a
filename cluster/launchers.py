"""Two ways to get the process of a job: forked by a zygote (Linux), or started as a new interpreter. Know no protocol.

A launcher answers a request with a pid, at once or later, through `started(job, pid)` or `failed(job, reason)`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from parl_lite.launch import python_command
from parl_lite.loop import Loop

Started = Callable[[str, int], Iterable[Any]]
Failed = Callable[[str, str], Iterable[Any]]


class Launcher(Protocol):
    """Starts processes of jobs."""

    def start(self, request: dict[str, Any], output: int, first_words: int) -> None:
        """Ask for a process; the two descriptors stay the caller's to close."""

    def helpers(self) -> set[int]:
        """Return the pids of processes that are no jobs."""

    def close(self) -> None:
        """End what is not a job."""


class ZygoteLauncher:
    """Keeps one zygote, and starts another when it dies; jobs that were asked for meanwhile are asked for again."""

    def __init__(self, loop: Loop, environment: dict[str, str], folder: str, started: Started, failed: Failed) -> None:
        self._loop = loop
        self._environment = environment
        self._folder = folder
        self._started = started
        self._failed = failed
        self._asked: dict[str, tuple[dict[str, Any], int, int]] = {}
        self._begin()

    def start(self, request: dict[str, Any], output: int, first_words: int) -> None:
        """Ask the zygote for a fork."""
        copies = (os.dup(output), os.dup(first_words))
        self._asked[request["job"]] = (request, *copies)
        self._send(request, *copies)

    def helpers(self) -> set[int]:
        """Return the zygote's pid."""
        return {self._process.pid}

    def close(self) -> None:
        """Let the zygote end: its socket closes."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:  # it is still importing
            self._process.kill()
            self._process.wait()

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [*python_command("parl_lite.cluster.zygote"), str(os.getpid())],
            stdin=theirs.fileno(),
            env=self._environment,
            cwd=self._folder,
            start_new_session=True,
        )
        theirs.close()
        self._socket.setblocking(False)
        self._loop.watch(self._socket.fileno(), self._replied)

    def _send(self, request: dict[str, Any], output: int, first_words: int) -> None:
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [output, first_words])
        except OSError:
            pass  # the zygote is gone: `_replied` sees it too, and asks the next one

    def _replied(self) -> Iterable[Any]:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._begin_again()
            return
        reply = json.loads(data)
        _, *copies = self._asked.pop(reply["job"])
        for fd in copies:
            os.close(fd)
        if "pid" in reply:
            yield from self._started(reply["job"], reply["pid"])
        else:
            yield from self._failed(reply["job"], reply["error"])

    def _begin_again(self) -> None:
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self._begin()
        for asked in self._asked.values():
            self._send(*asked)


class InterpreterLauncher:
    """Starts a new interpreter for each job: slower and larger, but possible everywhere."""

    def __init__(self, environment: dict[str, str], folder: str, started: Started, failed: Failed) -> None:
        self._environment = environment
        self._folder = folder
        self._started = started
        self._failed = failed
        self.events: list[Any] = []

    def start(self, request: dict[str, Any], output: int, first_words: int) -> None:
        """Start it."""
        try:
            process = subprocess.Popen(
                [*python_command("parl_lite.cluster.job_process"), json.dumps(request), str(first_words)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self._folder,
                pass_fds=[first_words],
                start_new_session=True,
            )
        except OSError as error:
            self.events.extend(self._failed(request["job"], f"cannot start {sys.executable}: {error}"))
            return
        process.returncode = 0  # it is reaped by its pid, not by this object
        self.events.extend(self._started(request["job"], process.pid))

    def helpers(self) -> set[int]:
        """Return nothing: there are only jobs."""
        return set()

    def close(self) -> None:
        """There is nothing to end."""
