"""The catalogue of control messages: one frozen dataclass each, named by what the sender says. Knows no socket and no clock.

The Arrow schema of a message is derived from its fields (`schema_of`), so the catalogue is the protocol's whole definition.
A field is an int, float, bool, str, one of these or None, a tuple of these, or (a tuple of) a `Part`: a dataclass that only
travels inside a message. One that no honest peer would send cannot be made: it raises ValueError.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, fields
from functools import cache

import pyarrow as pa

PROTOCOL = 3
"""Raised whenever two versions of this file, or of frames.py, cannot talk to each other."""


# --- parts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Versions:
    """What must agree between two sides before any of the user's bytes are read."""

    protocol: int
    package: str
    python: str
    numpy: str

    def conflict_with(self, other: Versions) -> str:
        """Return one sentence part that names what differs, or '' when the two sides can work together."""
        pairs = [(f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return ", ".join(f"{name} {mine} here and {theirs} there" for name, mine, theirs in pairs if mine != theirs)


@dataclass(frozen=True)
class Place:
    """Where a process is: host name, process id, and what tells whether two processes share a running kernel."""

    host: str
    pid: int
    boot_id: str


@dataclass(frozen=True)
class Needs:
    """What a job needs from a worker; memory in bytes, None when unlimited."""

    n_cpu: int
    n_gpu: int
    max_memory: int | None

    def __post_init__(self) -> None:
        if self.n_cpu < 0 or self.n_gpu < 0 or (self.max_memory or 0) < 0:
            raise ValueError(f"nothing needs less than nothing: {self}")


@dataclass(frozen=True)
class RunningJob:
    """A job a worker already runs when it joins (again)."""

    job: str
    client: str
    name: str
    needs: Needs
    gpus: tuple[str, ...]
    pid: int
    addresses: tuple[str, ...]
    log_path: str

    def __post_init__(self) -> None:
        bytes.fromhex(self.client)  # raises ValueError
        _check_distinct(self.gpus)


def _check_distinct(gpus: tuple[str, ...]) -> None:
    if len(set(gpus)) < len(gpus):
        raise ValueError(f"a GPU is named twice: {gpus}")


# --- from a worker -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinWorker:
    """I am a worker and offer this; these jobs run here already."""

    versions: Versions
    place: Place
    n_cpu: int
    gpus: tuple[str, ...]
    memory: int
    jobs: tuple[RunningJob, ...]

    def __post_init__(self) -> None:
        if self.n_cpu < 0:
            raise ValueError(f"a worker cannot offer {self.n_cpu} CPUs")
        _check_distinct(self.gpus)


@dataclass(frozen=True)
class JobReady:
    """The job's sockets are open at these addresses."""

    job: str
    pid: int
    addresses: tuple[str, ...]
    log_path: str


@dataclass(frozen=True)
class JobEnded:
    """The job's process is gone (or never came to be: pid 0)."""

    job: str
    pid: int
    exit_code: int | None
    signal: int | None
    reason: str
    out_of_memory: bool
    log_tail: str
    log_path: str


@dataclass(frozen=True)
class JobWrote:
    """The job printed this."""

    job: str
    text: str


@dataclass(frozen=True)
class DrainWorker:
    """I take no more jobs, and end those I have."""

    reason: str


@dataclass(frozen=True)
class LeaveWorker:
    """All my jobs have ended, and I go."""

    reason: str


# --- from a client -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinClient:
    """I am a client; these jobs are mine already, and these wishes still wait."""

    versions: Versions
    place: Place
    jobs: tuple[str, ...]
    wishes: tuple[int, ...]
    show_logs: bool


@dataclass(frozen=True)
class WantJob:
    """I want a job; the number is mine and unique within this client."""

    wish: int
    name: str
    needs: Needs


@dataclass(frozen=True)
class ForgetWish:
    """I no longer want it."""

    wish: int


@dataclass(frozen=True)
class ReleaseJob:
    """I need this job no more."""

    job: str


@dataclass(frozen=True)
class LeaveClient:
    """End all my jobs and say goodbye when they are gone."""


# --- from anybody ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskStatus:
    """What does the cluster look like?"""


@dataclass(frozen=True)
class StopCluster:
    """End every node of this cluster."""


# --- from the master ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """You have joined."""

    cluster: str


@dataclass(frozen=True)
class Refused:
    """You cannot join; `kind` is "version" or "protocol"."""

    kind: str
    reason: str


@dataclass(frozen=True)
class JoinAgain:
    """You speak as if we knew each other: we do not (any more)."""


@dataclass(frozen=True)
class StartJob:
    """Worker: start this job."""

    job: str
    client: str
    name: str
    needs: Needs
    gpus: tuple[str, ...]
    show_logs: bool


@dataclass(frozen=True)
class EndJob:
    """Worker: end this job."""

    job: str


@dataclass(frozen=True)
class StopNode:
    """Worker or client: the cluster ends now."""

    reason: str


@dataclass(frozen=True)
class JobGranted:
    """Client: your wish runs here."""

    wish: int
    job: str
    place: Place
    addresses: tuple[str, ...]
    log_path: str


@dataclass(frozen=True)
class WishWaits:
    """Client: your wish waits, for this reason."""

    wish: int
    reason: str


@dataclass(frozen=True)
class WishRefused:
    """Client: your wish cannot be granted."""

    wish: int
    reason: str


@dataclass(frozen=True)
class JobLost:
    """Client: your job is gone."""

    job: str
    place: Place
    exit_code: int | None
    signal: int | None
    reason: str
    out_of_memory: bool
    log_tail: str
    log_path: str


@dataclass(frozen=True)
class JobPrinted:
    """Client: your job printed this."""

    job: str
    name: str
    place: Place
    text: str


@dataclass(frozen=True)
class Status:
    """The cluster as JSON text; see `master_state.report`."""

    report: str


@dataclass(frozen=True)
class Goodbye:
    """Client: all your jobs have ended."""


Message = (
    JoinWorker
    | JobReady
    | JobEnded
    | JobWrote
    | DrainWorker
    | LeaveWorker
    | JoinClient
    | WantJob
    | ForgetWish
    | ReleaseJob
    | LeaveClient
    | AskStatus
    | StopCluster
    | Welcome
    | Refused
    | JoinAgain
    | StartJob
    | EndJob
    | StopNode
    | JobGranted
    | WishWaits
    | WishRefused
    | JobLost
    | JobPrinted
    | Status
    | Goodbye
)

PARTS = (Versions, Place, Needs, RunningJob)
CATALOGUE: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(Message)}

_PLAIN = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


@cache
def hints_of(kind: type) -> dict[str, typing.Any]:
    """Return {field name: type} of a message or part."""
    return typing.get_type_hints(kind)


@cache
def schema_of(kind: type) -> pa.Schema:
    """Return the Arrow schema of a message kind, one field each, in order."""
    return pa.schema([_arrow_field(name, hint) for name, hint in hints_of(kind).items()])


def is_optional(hint: typing.Any) -> bool:
    """Return whether a field's type is `X | None`."""
    return isinstance(hint, types.UnionType)


def without_none(hint: typing.Any) -> typing.Any:
    """Return X of `X | None`."""
    return next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)


def _arrow_field(name: str, hint: typing.Any) -> pa.Field:
    optional = is_optional(hint)
    return pa.field(name, _arrow_type(without_none(hint) if optional else hint), nullable=optional)


def _arrow_type(hint: typing.Any) -> pa.DataType:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if typing.get_origin(hint) is tuple:
        return pa.list_(_arrow_field("item", typing.get_args(hint)[0]))
    return pa.struct([_arrow_field(name, inner) for name, inner in hints_of(hint).items()])
