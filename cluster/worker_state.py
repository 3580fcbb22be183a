"""The worker as a pure machine: the jobs of this machine and what its master knows of them. Knows no process, socket or clock.

A job is starting (its process was asked for) ─JobSpoke─▶ running ─EndJob, Interrupted─▶ ending; JobDied ends each of them.
An ending job is asked (SIGTERM), and after `job_grace` killed. While the master is away nothing ends: the jobs go on, and it
joins again with the list of them; after `master_patience` they are ended, since nobody can own them any more.

A running job with `max_memory` is measured every `memory_interval`; what it uses more than at its start counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parl_lite.machine import (
    MASTER,
    REFUSALS,
    Babbled,
    Connected,
    Disconnected,
    Finish,
    HandshakeFailed,
    Interrupted,
    Received,
    Say,
    Send,
    Woke,
    assert_never,
)
from parl_lite.messages import (
    AskStatus,
    DrainWorker,
    EndJob,
    ForgetWish,
    Goodbye,
    JobEnded,
    JobGranted,
    JobLost,
    JobPrinted,
    JobReady,
    JobWrote,
    JoinAgain,
    JoinClient,
    JoinWorker,
    LeaveClient,
    LeaveWorker,
    Message,
    Place,
    Refused,
    ReleaseJob,
    RunningJob,
    StartJob,
    Status,
    StopCluster,
    StopNode,
    Versions,
    WantJob,
    Welcome,
    WishRefused,
    WishWaits,
)
from parl_lite.settings import Settings

_MEGABYTE = 1024 * 1024

# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobSpoke:
    """A job's process has opened its sockets."""

    job: str
    pid: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class JobDied:
    """A job's process is gone, or could not be started (pid 0); `reason` continues the words "the process"."""

    job: str
    pid: int
    exit_code: int | None
    signal: int | None
    reason: str
    log_tail: str


@dataclass(frozen=True)
class JobPrintedHere:
    """A job's process wrote to its output."""

    job: str
    text: str


@dataclass(frozen=True)
class JobMeasured:
    """A job uses so many bytes of its own, its children included."""

    job: str
    memory: int


Event = (
    JobMeasured
    | Connected
    | Disconnected
    | HandshakeFailed
    | Received
    | Babbled
    | Woke
    | JobSpoke
    | JobDied
    | JobPrintedHere
    | Interrupted
)

# --- actions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartChild:
    """Start the process of a job; answered by JobSpoke or JobDied."""

    order: StartJob
    log_path: str


@dataclass(frozen=True)
class EndChild:
    """Ask a job's process to end, or kill it."""

    job: str
    kill: bool


@dataclass(frozen=True)
class MeasureChild:
    """Find out how much memory a job uses; answered by JobMeasured."""

    job: str


@dataclass(frozen=True)
class Joined:
    """The master knows this worker now."""

    cluster: str


Action = Send | Say | Finish | StartChild | EndChild | MeasureChild | Joined


@dataclass
class Child:
    """A job of this machine."""

    order: StartJob
    log_path: str
    kill_at: float | None
    """When to kill it: it had to open its sockets, or to end, by then."""
    pid: int = 0
    addresses: tuple[str, ...] = ()
    ending: bool = False
    memory_at_start: int | None = None
    over_limit: str = ""
    """What it used when it was killed for using too much."""


class WorkerState:
    """What one worker knows. Its fields belong together: change them through `handle` only, ever."""

    def __init__(
        self,
        versions: Versions,
        place: Place,
        n_cpu: int,
        gpus: tuple[str, ...],
        memory: int,
        log_folder: str,
        settings: Settings,
    ) -> None:
        self.children: dict[str, Child] = {}
        self.joined = False
        self._versions = versions
        self._place = place
        self._n_cpu = n_cpu
        self._gpus = gpus
        self._memory = memory
        self._log_folder = log_folder
        self._settings = settings
        self._n_refusals = 0
        self._was_welcome = False
        self._away_since: float | None = None
        self._measure_at: float | None = None
        self._leaving = ""
        self._out: list[Action] = []

    # --- the machine ---------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> Sequence[Action]:
        """Take in what happened and return what to do."""
        match event:
            case Connected():
                self._n_refusals = 0
                self._join()
            case HandshakeFailed(final):
                self._n_refusals += REFUSALS if final else 1
                self._refused()
            case Disconnected():
                self._disconnected(now)
            case Received(_, message):
                self._received(message, now)
            case Babbled(_, reason):
                self._out.append(Say(f"the master sent nonsense: {reason}"))
            case JobSpoke():
                self._spoke(event)
            case JobDied():
                self._died(event)
            case JobMeasured(job, memory):
                self._measured(job, memory)
            case JobPrintedHere(job, text):
                self._printed(job, text)
            case Interrupted(reason):
                self._leave(reason, now)
            case Woke():
                pass
            case _:
                assert_never(event)
        self._expire(now)
        self._measure(now)
        if self._leaving and not self.children:
            self._send(LeaveWorker(self._leaving))
            self._out.append(Finish(0, self._leaving))
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """Return when a child must be killed or the master's absence is too long."""
        times = [child.kill_at for child in self.children.values() if child.kill_at is not None]
        if self._away_since is not None and not all(child.ending for child in self.children.values()):
            times.append(self._away_since + self._settings.master_patience)
        if self._measure_at is not None:
            times.append(self._measure_at)
        return min(times, default=None)

    def peers(self) -> Sequence[bytes]:
        """Return nobody: the connection's own monitor tells when the master is lost."""
        return ()

    def check(self) -> None:
        """Assert that the jobs fit into this machine."""
        assert sum(child.order.needs.n_cpu for child in self.children.values()) <= self._n_cpu
        held = [gpu for child in self.children.values() for gpu in child.order.gpus]
        assert len(held) == len(set(held))

    def _send(self, message: Message) -> None:
        self._out.append(Send(MASTER, message))

    # --- the master ----------------------------------------------------------------------------------------

    def _join(self) -> None:
        jobs = [
            RunningJob(
                name,
                child.order.client,
                child.order.name,
                child.order.needs,
                child.order.gpus,
                child.pid,
                child.addresses,
                child.log_path,
            )
            for name, child in self.children.items()
        ]
        self._send(JoinWorker(self._versions, self._place, self._n_cpu, self._gpus, self._memory, tuple(jobs)))
        if self._leaving:
            self._send(DrainWorker(self._leaving))

    def _refused(self) -> None:
        """Give up if this never was a worker of that master; one that was waits for its master to come back."""
        if self._n_refusals >= REFUSALS and not self._was_welcome:
            reason = "the master hung up in the handshake: give its key (see `parl-lite key` there), or check the address"
            self._out.append(Finish(1, reason))

    def _disconnected(self, now: float) -> None:
        if self.joined:
            self._out.append(Say("the connection to the master broke; its jobs go on, and I try to join again"))
        self.joined = False
        if self._away_since is None:
            self._away_since = now

    def _received(self, message: Message, now: float) -> None:
        match message:
            case Welcome(cluster):
                self.joined = self._was_welcome = True
                self._away_since = None
                self._out.append(Joined(cluster))
            case JoinAgain():
                self._join()
            case StartJob():
                self._start(message, now)
            case EndJob(job):
                self._end(job, now)
            case StopNode(reason):
                self._leave(reason, now)
            case Refused(_, reason):
                self._out.append(Finish(1, reason))
            case (
                JoinWorker()
                | JobReady()
                | JobEnded()
                | JobWrote()
                | DrainWorker()
                | LeaveWorker()
                | JoinClient()
                | WantJob()
                | ForgetWish()
                | ReleaseJob()
                | LeaveClient()
                | AskStatus()
                | StopCluster()
                | JobGranted()
                | WishWaits()
                | WishRefused()
                | JobLost()
                | JobPrinted()
                | Status()
                | Goodbye()
            ):
                self._out.append(Say(f"the master sent {type(message).__name__}, which is not for a worker"))
            case _:
                assert_never(message)

    def _start(self, order: StartJob, now: float) -> None:
        if order.job in self.children:
            return
        if self._leaving:
            self._send(JobEnded(order.job, 0, None, None, f"was not started: {self._leaving}", False, "", ""))
            return
        log_path = f"{self._log_folder}/{_as_file_name(order.name)}-{_as_file_name(order.job)}.log"
        self.children[order.job] = Child(order, log_path, now + self._settings.job_start_timeout)
        self._out.append(StartChild(order, log_path))

    def _end(self, job: str, now: float) -> None:
        child = self.children.get(job)
        if child is None:
            self._send(JobEnded(job, 0, None, None, "was not here", False, "", ""))
        elif not child.ending:
            child.ending = True
            child.kill_at = now + self._settings.job_grace
            self._out.append(EndChild(job, kill=False))

    def _leave(self, reason: str, now: float) -> None:
        if not self._leaving:
            self._leaving = reason
            self._send(DrainWorker(reason))
            for job in list(self.children):
                self._end(job, now)

    # --- the children --------------------------------------------------------------------------------------

    def _spoke(self, event: JobSpoke) -> None:
        child = self.children.get(event.job)
        if child is None:
            return
        child.pid, child.addresses = event.pid, event.addresses
        if not child.ending:
            child.kill_at = None
            self._send(JobReady(event.job, event.pid, event.addresses, child.log_path))

    def _printed(self, job: str, text: str) -> None:
        child = self.children.get(job)
        if child is not None and child.order.show_logs:
            self._send(JobWrote(job, text))

    def _measured(self, job: str, memory: int) -> None:
        child = self.children.get(job)
        if child is None or child.ending or child.order.needs.max_memory is None:
            return
        if child.memory_at_start is None:
            child.memory_at_start = memory
        used, limit = memory - child.memory_at_start, child.order.needs.max_memory
        if used > limit:
            child.over_limit = f"{used // _MEGABYTE} MB more memory than at its start, max_memory is {limit // _MEGABYTE} MB"
            child.ending = True
            self._out.append(EndChild(job, kill=True))

    def _measure(self, now: float) -> None:
        limited = [job for job, child in self.children.items() if child.addresses and child.order.needs.max_memory]
        if not limited:
            self._measure_at = None
        elif self._measure_at is None or now >= self._measure_at:
            self._measure_at = now + self._settings.memory_interval
            self._out.extend(MeasureChild(job) for job in limited)

    def _died(self, event: JobDied) -> None:
        child = self.children.pop(event.job, None)
        if child is None:
            return
        reason = f"was killed: it used {child.over_limit}" if child.over_limit else event.reason
        self._send(
            JobEnded(
                event.job,
                event.pid,
                event.exit_code,
                event.signal,
                reason,
                bool(child.over_limit),
                event.log_tail,
                child.log_path,
            )
        )

    def _expire(self, now: float) -> None:
        if self._away_since is not None and now >= self._away_since + self._settings.master_patience:
            for job in list(self.children):
                self._end(job, now)
        for job, child in self.children.items():
            if child.kill_at is not None and now >= child.kill_at:
                child.ending, child.kill_at = True, None
                self._out.append(EndChild(job, kill=True))


def _as_file_name(text: str) -> str:
    """Return a name from a peer without anything that leads out of a folder."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in text).lstrip(".")[:100]
