"""Masters and workers for tests, started one by one, so that each can be frozen, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from parl_lite import folders
from parl_lite.launch import Node, child_environment, python_command
from parl_lite.security import ClusterKey

_START_TIMEOUT = 60.0


@dataclass(frozen=True)
class Surroundings:
    """Where nodes run: in this process's own surroundings, or in others that a command makes."""

    through: tuple[str, ...] = ()
    """Head of a command that makes the surroundings and becomes, in the same process, the command behind it."""
    folder: Path | None = None
    """TMPDIR there; ours by default."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a process there."""
        return {**child_environment(), "TMPDIR": str(self.folder or tempfile.gettempdir())}

    def runtime_folder(self) -> Path:
        """Return the folder that nodes there have their folders in."""
        return (self.folder or Path(tempfile.gettempdir())) / f"parl_lite-{os.getuid()}"


HERE = Surroundings()


@dataclass
class StandingCluster:
    """One master, on one port for all its lives, and any number of workers."""

    key: ClusterKey | None = None
    address: str = "127.0.0.1:0"
    master: Node | None = None
    workers: list[Node] = field(default_factory=list)
    _homes: dict[int, Path] = field(default_factory=dict)

    def start_master(self, where: Surroundings = HERE) -> Node:
        """Start a master, on the port of the one before if there was one."""
        self.master, said = self._start("master", ["--address", self.address], where)
        self.address = str(said["address"])
        return self.master

    def start_worker(self, n_cpu: int, where: Surroundings = HERE, options: Sequence[str] = ()) -> Node:
        """Start a worker, which has joined when this returns."""
        worker, _ = self._start("worker", [self.address, "--n-cpu", str(n_cpu), *options], where)
        self.workers.append(worker)
        return worker

    def log_of(self, node: Node) -> str:
        """Return what a node has written."""
        return node.log_path.read_text() if node.log_path is not None else ""

    def end_worker(self, worker: Node, grace: float = 15.0) -> None:
        """End a worker in order."""
        self.workers.remove(worker)
        self._end(worker, grace)

    def kill(self, node: Node) -> None:
        """Kill a master or worker, and remove what it left."""
        node.process.kill()
        if node in self.workers:
            self.workers.remove(node)
        self._end(node, 5.0)

    def end(self) -> None:
        """End everything, the workers with their jobs first."""
        for worker in list(self.workers):
            self.end_worker(worker)
        if self.master is not None:
            self._end(self.master, 5.0)

    def _start(self, role: str, arguments: Sequence[str], where: Surroundings) -> tuple[Node, dict[str, object]]:
        base = where.runtime_folder()
        base.mkdir(mode=0o700, exist_ok=True)
        home = Path(tempfile.mkdtemp(prefix=role[0], dir=base))
        options = ["--folder", str(home)]
        if self.key is not None:
            self.key.write(home / "given")
            options += ["--key-file", str(home / "given")]
        node = _launch(role, [*arguments, *options], home, where)
        self._homes[node.process.pid] = home
        return node, node.await_ready(time.monotonic() + _START_TIMEOUT)

    def _end(self, node: Node, grace: float) -> None:
        with suppress(ProcessLookupError):
            os.kill(node.process.pid, signal.SIGCONT)
        node.end(grace)
        folders.remove_if_empty_of_life(self._homes[node.process.pid])


def _launch(role: str, arguments: Sequence[str], home: Path, where: Surroundings) -> Node:
    """Do what parl_lite.launch does, in other surroundings; the log stays in ours."""
    read, write = os.pipe()
    log_path = home / f"{role}.log"
    command = [*where.through, *python_command(f"parl_lite.cluster.{role}"), *arguments, "--ready-fd", str(write)]
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            command,
            env=where.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[write],
            start_new_session=True,
        )
    os.close(write)
    return Node(role, process, read, log_path)


def freeze(pid: int) -> None:
    """Stop a process where it is, as a machine that hangs does."""
    os.kill(pid, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Let it go on."""
    os.kill(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """Kill a process without a word."""
    os.kill(pid, signal.SIGKILL)


def n_descriptors(pid: int) -> int:
    """Return how many files, sockets and pipes a process has open."""
    return psutil.Process(pid).num_fds()
