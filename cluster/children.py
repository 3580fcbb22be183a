"""The jobs of this machine as processes: started, watched by pid, heard, ended with all they started. Knows no master.

    launcher ──pid──▶ pidfd ──readable──▶ reaped: exit code or signal ──▶ JobDied
    output pipe ──────────────▶ JobLog ─────────────────────────────────▶ JobPrintedHere
    first words ──────────────────────────────────────────────────────▶ JobSpoke

This process is a subreaper: what a job leaves behind becomes our child. When a job dies its session is killed, and
whatever carries its mark in the environment.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parl_lite import hostos
from parl_lite.launch import child_environment
from parl_lite.loop import Loop
from parl_lite.messages import StartJob
from parl_lite.security import KEY_FILE_VARIABLE
from parl_lite.settings import Settings
from parl_lite.waker import Waker

from . import gpus, threads
from .doors import files_of
from .job_log import JobLog
from .launchers import InterpreterLauncher, Launcher, ZygoteLauncher
from .worker_state import EndChild, JobDied, JobMeasured, JobPrintedHere, JobSpoke, StartChild

_READ_AT_ONCE = 64 * 1024
MARK = "PARL_LITE_JOB"
_DESCRIPTORS = 24
"""A job starts only when so many files could be opened: it and its log, and what watching, reaping and a new zygote need."""


@dataclass
class Child:
    """A job's process and the descriptors by which it is watched (-1: none, or no more)."""

    job: str
    log: JobLog
    output: int
    first_words: int
    pid: int = 0
    pidfd: int = -1
    heard: bytes = b""


@dataclass(frozen=True)
class Surroundings:
    """What jobs of this worker are told: where they may listen and live."""

    folder: str
    host: str
    """Where other machines reach tcp sockets of jobs, "" for none."""
    interface: str
    """Where those listen: mostly the same; all of this machine's when the host is a router's that leads here."""
    ports: tuple[int, int] | None
    """First port and the one after the last; None for any."""
    master: str
    key_file: str
    """Where the cluster's key is, "" for none."""
    stores: tuple[str, ...] = ()
    """Addresses of the worker's object store."""


class Children:
    """All job processes of one worker."""

    def __init__(self, loop: Loop, surroundings: Surroundings, settings: Settings, use_zygote: bool | None = None) -> None:
        self._loop = loop
        self._surroundings = surroundings
        self._settings = settings
        self._children: dict[str, Child] = {}
        environment = {**child_environment(), **threads.defaults(os.environ)}
        if use_zygote is None:
            use_zygote = hostos.LINUX
        self._adopts = hostos.adopt_orphans()
        self._launcher: Launcher
        if use_zygote and self._adopts:
            self._launcher = ZygoteLauncher(loop, environment, surroundings.folder, self._started, self._failed)
        else:
            self._launcher = InterpreterLauncher(environment, surroundings.folder, self._started, self._failed)
        self._reap_wish = Waker()
        signal.signal(signal.SIGCHLD, lambda number, frame: self._reap_wish.wake())
        loop.watch(self._reap_wish.fileno(), self._reap_strangers)

    # --- actions of the worker's machine -------------------------------------------------------------------

    def start(self, action: StartChild) -> None:
        """Ask for the process of a job."""
        order = action.order
        try:
            hostos.need_descriptors(_DESCRIPTORS)
            child, ends = self._open(order.job, action.log_path)
        except OSError as error:
            self._loop.post(JobDied(order.job, 0, None, None, f"could not be started: {error}", ""))
            return
        self._children[order.job] = child
        self._loop.watch(child.output, lambda: self._output(child))
        self._loop.watch(child.first_words, lambda: self._words(child))
        self._launcher.start(self._request(order), *ends)
        for fd in ends:
            os.close(fd)
        if isinstance(self._launcher, InterpreterLauncher):
            for event in self._launcher.events:
                self._loop.post(event)
            self._launcher.events.clear()

    def end(self, action: EndChild) -> None:
        """Ask a job to end, or kill it with all it started."""
        child = self._children.get(action.job)
        if child is None:
            return
        if child.pid == 0:  # the zygote has not answered: when it does, `_started` finds no job and kills the process
            self._forget(self._children.pop(action.job))
            self._loop.post(JobDied(action.job, 0, None, None, "was ended before it began", ""))
        else:
            _kill(child.pid, signal.SIGKILL if action.kill else signal.SIGTERM)

    def measure(self, job: str) -> None:
        """Find out how much memory a job and what it started use."""
        child = self._children.get(job)
        if child is not None and child.pid:
            family = {child.pid, *hostos.session_members(child.pid), *hostos.descendants_of(child.pid)}
            self._loop.post(JobMeasured(job, sum(map(hostos.own_memory, family))))

    def close(self) -> None:
        """End the launcher; no job is left when a worker ends in order."""
        self._launcher.close()
        self._kill_leftovers()

    # --- starting ------------------------------------------------------------------------------------------

    def _open(self, job: str, log_path: str) -> tuple[Child, tuple[int, int]]:
        log = JobLog(log_path, self._settings, time.monotonic)
        output, output_end = os.pipe()
        first_words, first_words_end = os.pipe()
        for fd in (output, first_words):
            os.set_blocking(fd, False)
        return Child(job, log, output, first_words), (output_end, first_words_end)

    def _request(self, order: StartJob) -> dict[str, Any]:
        n_threads = 0 if threads.set_by_user(os.environ) or order.needs.n_cpu == 1 else order.needs.n_cpu
        environment = {
            MARK: order.job,
            "PARL_LITE_ADDRESS": self._surroundings.master,
            gpus.VARIABLE: ",".join(order.gpus),
        }
        if self._surroundings.key_file:
            environment[KEY_FILE_VARIABLE] = self._surroundings.key_file
        if n_threads:
            environment |= {name: str(n_threads) for name in threads.VARIABLES}
        return {
            "job": order.job,
            "name": order.name,
            "folder": self._surroundings.folder,
            "host": self._surroundings.host,
            "interface": self._surroundings.interface,
            "ports": self._surroundings.ports,
            "stores": self._surroundings.stores,
            "worker_pid": os.getpid(),
            "environment": environment,
            "n_threads": n_threads,
        }

    def _started(self, job: str, pid: int) -> Iterable[Any]:
        child = self._children.get(job)
        if child is None:
            _kill(pid, signal.SIGKILL)
            return
        child.pid = pid
        try:
            child.pidfd = hostos.open_process(pid)
        except OSError as error:
            _kill(pid, signal.SIGKILL)
            yield from self._failed(job, str(error))
            return
        self._loop.watch(child.pidfd, lambda: self._died(child))

    def _failed(self, job: str, reason: str) -> Iterable[Any]:
        child = self._children.pop(job, None)
        if child is not None:
            self._forget(child)
            yield JobDied(job, 0, None, None, f"could not be started: {reason}", "")

    # --- hearing -------------------------------------------------------------------------------------------

    def _words(self, child: Child) -> Iterable[Any]:
        data = _read(child.first_words)
        if data is None:
            return
        child.heard += data
        if data and not child.heard.endswith(b"\n"):
            return
        self._loop.unwatch(child.first_words)
        os.close(child.first_words)
        child.first_words = -1
        said = json.loads(child.heard or b"{}")
        if "addresses" in said:
            yield JobSpoke(child.job, said["pid"], tuple(said["addresses"]))
        elif "error" in said:
            child.heard = said["error"].encode()

    def _output(self, child: Child) -> Iterable[Any]:
        data = _read(child.output)
        if data is None:
            return
        if not data:
            self._loop.unwatch(child.output)
            os.close(child.output)
            child.output = -1
            return
        text = child.log.take(data)
        if text:
            yield JobPrintedHere(child.job, text)

    # --- dying ---------------------------------------------------------------------------------------------

    def _died(self, child: Child) -> Iterable[Any]:
        exit_code, number = _reap(child.pid)
        self._close(child, "pidfd")  # first of all: looking for what it started needs a descriptor
        self._kill_what_it_started(child)
        while child.output >= 0 and hostos.readable(child.output):
            yield from self._output(child)
        rest = child.log.close()
        if rest:
            yield JobPrintedHere(child.job, rest)
        del self._children[child.job]
        if child.first_words >= 0:
            yield from self._words(child)
        self._forget(child)
        reason = _reason(exit_code, number)
        if child.heard and not child.heard.endswith(b"\n"):
            reason = f"could not listen: {child.heard.decode()}"
        yield JobDied(child.job, child.pid, exit_code, number, reason, child.log.tail())

    def _forget(self, child: Child) -> None:
        for name in ("output", "first_words", "pidfd"):
            self._close(child, name)
        child.log.close()
        for file in files_of(self._surroundings.folder, child.job):
            Path(file).unlink(missing_ok=True)

    def _close(self, child: Child, name: str) -> None:
        fd = getattr(child, name)
        if fd >= 0:
            self._loop.unwatch(fd)
            os.close(fd)
            setattr(child, name, -1)

    def _kill_what_it_started(self, child: Child) -> None:
        for pid in hostos.session_members(child.pid):
            _kill(pid, signal.SIGKILL)
        for pid in self._strangers():
            if _mark_of(pid) == child.job:
                _kill_tree(pid)

    def _strangers(self) -> list[int]:
        """Return children of this process that are neither jobs nor helpers: adopted from jobs."""
        known = {child.pid for child in self._children.values()} | self._launcher.helpers()
        return [pid for pid in hostos.children_of(os.getpid()) if pid not in known]

    def _reap_strangers(self) -> Iterable[Any]:
        self._reap_wish.clear()
        if any(child.pid == 0 for child in self._children.values()):
            return ()  # a stranger may be a job whose pid the zygote is about to tell; its end wakes us again
        for pid in self._strangers():
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        return ()

    def _kill_leftovers(self) -> None:
        for pid in self._strangers():
            _kill_tree(pid)


def _read(fd: int) -> bytes | None:
    """Return what is there, b"" at the end, None for nothing yet."""
    try:
        return os.read(fd, _READ_AT_ONCE)
    except BlockingIOError:
        return None


def _reap(pid: int) -> tuple[int | None, int | None]:
    """Return (exit code, None) or (None, signal) of a child that has ended."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None, None
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (None, -code)


def _reason(exit_code: int | None, number: int | None) -> str:
    if number is not None:
        return f"was killed by {signal.Signals(number).name}"
    return f"ended with exit code {exit_code}"


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _kill_tree(pid: int) -> None:
    for member in {pid, *hostos.descendants_of(pid)}:
        _kill(member, signal.SIGKILL)


def _mark_of(pid: int) -> str:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{MARK}=".encode()
    return next((entry[len(prefix) :].decode() for entry in entries if entry.startswith(prefix)), "")
