"""The client's control side as a pure machine: its wishes, its jobs, its master. Knows no socket, thread or clock.

A wish is waiting ─JobGranted─▶ a job held ─Released, JobLost─▶ gone. All survive a broken connection: on every join the
client names the jobs it holds and repeats the wishes that wait.
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

# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wished:
    """The user creates an actor."""

    want: WantJob


@dataclass(frozen=True)
class GaveUp:
    """The user no longer waits for it."""

    wish: int


@dataclass(frozen=True)
class Released:
    """The user needs an actor no more."""

    job: str


@dataclass(frozen=True)
class AskedStatus:
    """The user wants to see the cluster."""


@dataclass(frozen=True)
class Left:
    """The user disconnects."""


@dataclass(frozen=True)
class Quit:
    """Nobody waits for a goodbye any more."""


Event = (
    Connected
    | Disconnected
    | HandshakeFailed
    | Received
    | Babbled
    | Woke
    | Wished
    | GaveUp
    | Released
    | AskedStatus
    | Left
    | Quit
)

# --- actions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """The master knows this client now."""

    cluster: str


@dataclass(frozen=True)
class Rejected:
    """The master will never let this client in."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Granted:
    """A wish came true."""

    grant: JobGranted


@dataclass(frozen=True)
class Denied:
    """A wish never can come true."""

    wish: int
    reason: str


@dataclass(frozen=True)
class Waits:
    """A wish waits, for this reason."""

    wish: int
    reason: str


@dataclass(frozen=True)
class Lost:
    """A job is gone."""

    loss: JobLost


@dataclass(frozen=True)
class Print:
    """A job printed something."""

    printed: JobPrinted


@dataclass(frozen=True)
class Reported:
    """This is what the cluster looks like, as JSON text."""

    report: str


Action = Send | Say | Finish | Joined | Rejected | Granted | Denied | Waits | Lost | Print | Reported


class ClientState:
    """What one client knows. Its fields belong together: change them through `handle` only, ever."""

    def __init__(self, versions: Versions, place: Place, show_logs: bool) -> None:
        self.joined = False
        self._connected = False
        self._n_refusals = 0
        self._was_welcome = False
        self.wishes: dict[int, WantJob] = {}
        self.jobs: set[str] = set()
        self._versions = versions
        self._place = place
        self._show_logs = show_logs
        self._leaving = False
        self._asked_status = False
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
                if self._n_refusals >= REFUSALS and not self._was_welcome:
                    self._out.append(Rejected("handshake", "the handshake failed"))
            case Disconnected():
                self.joined = self._connected = False
                if self._leaving:
                    self._out.append(Finish(0, "the master is gone"))
            case Received(_, message):
                self._received(message)
            case Babbled(_, reason):
                self._out.append(Say(f"the master sent nonsense: {reason}"))
            case Wished(want):
                self._wish(want)
            case GaveUp(wish):
                if self.wishes.pop(wish, None) is not None:
                    self._send_if_connected(ForgetWish(wish))
            case Released(job):
                self._release(job)
            case AskedStatus():
                self._asked_status = True
                self._send_if_connected(AskStatus())
            case Left():
                self._leave()
            case Quit():
                self._out.append(Finish(0, "left"))
            case Woke():
                pass
            case _:
                assert_never(event)
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """Return None: nothing of a client's control side is bound to time; those who wait have deadlines of their own."""
        return None

    def peers(self) -> Sequence[bytes]:
        """Return nobody: the connection's own monitor tells when the master is lost."""
        return ()

    def check(self) -> None:
        """Assert that a client that left wants nothing."""
        assert not (self._leaving and self.wishes)

    def _send(self, message: Message) -> None:
        self._out.append(Send(MASTER, message))

    def _send_if_connected(self, message: Message) -> None:
        """What is not sent now is part of the next join: wishes, held jobs, the question for the status."""
        if self._connected:
            self._send(message)

    # --- what the user does --------------------------------------------------------------------------------

    def _join(self) -> None:
        jobs, wishes = tuple(sorted(self.jobs)), tuple(self.wishes)
        self._connected = True
        self._send(JoinClient(self._versions, self._place, jobs, wishes, self._show_logs))
        for want in self.wishes.values():
            self._send(want)
        if self._asked_status:
            self._send(AskStatus())
        if self._leaving:
            self._send(LeaveClient())

    def _wish(self, want: WantJob) -> None:
        if self._leaving:
            self._out.append(Denied(want.wish, "this process is disconnecting"))
            return
        self.wishes[want.wish] = want
        self._send_if_connected(want)

    def _release(self, job: str) -> None:
        if job in self.jobs:
            self.jobs.discard(job)
            self._send_if_connected(ReleaseJob(job))

    def _leave(self) -> None:
        self._leaving = True
        self.wishes.clear()
        if self._connected:
            self._send(LeaveClient())
        else:
            self._out.append(Finish(0, "the master is gone"))

    # --- what the master says ------------------------------------------------------------------------------

    def _received(self, message: Message) -> None:
        match message:
            case Welcome(cluster):
                self.joined = self._was_welcome = True
                self._out.append(Joined(cluster))
            case JoinAgain():
                self._join()
            case JobGranted():
                self._granted(message)
            case WishWaits(wish, reason):
                if wish in self.wishes:
                    self._out.append(Waits(wish, reason))
                else:  # it ended here while our join, which still named it, was on its way
                    self._send(ForgetWish(wish))
            case WishRefused(wish, reason):
                if self.wishes.pop(wish, None) is not None:
                    self._out.append(Denied(wish, reason))
            case JobLost(job):
                if job in self.jobs:
                    self.jobs.discard(job)
                    self._out.append(Lost(message))
            case JobPrinted():
                self._out.append(Print(message))
            case Status(report):
                self._asked_status = False
                self._out.append(Reported(report))
            case Refused(kind, reason):
                self._out.append(Rejected(kind, reason))
            case StopNode(reason):
                self._out.append(Say(reason))
            case Goodbye():
                self._out.append(Finish(0, "left"))
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
                | StartJob()
                | EndJob()
            ):
                self._out.append(Say(f"the master sent {type(message).__name__}, which is not for a client"))
            case _:
                assert_never(message)

    def _granted(self, grant: JobGranted) -> None:
        if self.wishes.pop(grant.wish, None) is None:
            if grant.job not in self.jobs:
                self._send(ReleaseJob(grant.job))  # it came after the user gave up
            return
        self.jobs.add(grant.job)
        self._out.append(Granted(grant))
