"""Makers of messages, of random values and of a master to talk to, for the tests of the protocol. Knows no socket, no clock."""

from __future__ import annotations

import random
import typing
from collections.abc import Sequence

from parl_lite.cluster import master_state
from parl_lite.cluster.master_state import MasterState
from parl_lite.machine import PeerLost, Received, Send, Woke
from parl_lite.messages import (
    CATALOGUE,
    JobEnded,
    JobGranted,
    JobLost,
    JobReady,
    JoinClient,
    JoinWorker,
    Message,
    Needs,
    Place,
    RunningJob,
    StartJob,
    Versions,
    WantJob,
    hints_of,
    is_optional,
    without_none,
)
from parl_lite.settings import Settings

VERSIONS = Versions(1, "0.1.0", "3.11", "2")
SETTINGS = Settings()
W, W2 = b"\x01w", b"\x02w"
"""Workers, by their routing ids."""
C, C2 = b"\x01c", b"\x02c"
"""Clients."""
ONE_CPU = Needs(1, 0, None)


# --- messages ----------------------------------------------------------------------------------------------


def place(host: str, pid: int = 1) -> Place:
    return Place(host, pid, "boot")


def worker(n_cpu: int = 2, gpus: Sequence[str] = (), jobs: Sequence[RunningJob] = (), host: str = "w") -> JoinWorker:
    return JoinWorker(VERSIONS, place(host), n_cpu, tuple(gpus), 8 << 30, tuple(jobs))


def client(jobs: Sequence[str] = (), wishes: Sequence[int] = (), show_logs: bool = True) -> JoinClient:
    return JoinClient(VERSIONS, place("c"), tuple(jobs), tuple(wishes), show_logs)


def want(wish: int, n_cpu: int = 1, n_gpu: int = 0) -> WantJob:
    return WantJob(wish, "Actor", Needs(n_cpu, n_gpu, None))


def start(job: str, of: bytes = C, n_cpu: int = 1, gpus: Sequence[str] = ()) -> StartJob:
    return StartJob(job, of.hex(), "Actor", Needs(n_cpu, len(gpus), None), tuple(gpus), True)


def log_of(job: str) -> str:
    """Where a worker with the log folder /logs writes the log of a job."""
    return f"/logs/Actor-{job}.log"


def ready(job: str) -> JobReady:
    return JobReady(job, 7, (f"tcp://{job}",), log_of(job))


def granted(wish: int, job: str, host: str = "w") -> JobGranted:
    return JobGranted(wish, job, place(host, 7), (f"tcp://{job}",), log_of(job))


def running(job: str, of: bytes = C, n_cpu: int = 1, spoke: bool = True) -> RunningJob:
    addresses = (f"tcp://{job}",) if spoke else ()
    return RunningJob(job, of.hex(), "Actor", Needs(n_cpu, 0, None), (), 7 if spoke else 0, addresses, log_of(job))


def ended(job: str, reason: str = "ended with exit code 1") -> JobEnded:
    return JobEnded(job, 7, 1, None, reason, False, "last words", log_of(job))


def lost(job: str, reason: str, host: str = "w") -> JobLost:
    """What a client hears when the master, not the worker, knows why."""
    return JobLost(job, place(host, 7), None, None, reason, False, "", log_of(job))


# --- a master to talk to -----------------------------------------------------------------------------------


class Master:
    """A master and the time; whatever happens, its invariants are checked afterwards."""

    def __init__(self, epoch: str = "e") -> None:
        self.state = MasterState("town", epoch, VERSIONS, "here:8010", SETTINGS)
        self.now = 100.0

    def does(self, event: master_state.Event) -> list[master_state.Action]:
        """Return the actions that an event brings about."""
        actions = list(self.state.handle(event, self.now))
        self.state.check()
        return actions

    def hears(self, peer: bytes, *messages: Message) -> list[master_state.Action]:
        """Return the actions that messages of a peer bring about."""
        return [action for message in messages for action in self.does(Received(peer, message))]

    def loses(self, *peers: bytes) -> list[master_state.Action]:
        return [action for peer in peers for action in self.does(PeerLost(peer))]

    def waits(self, seconds: float) -> list[master_state.Action]:
        self.now += seconds
        return self.does(Woke())


def letters(actions: Sequence[object], to: bytes | None = None) -> list[Message]:
    """Return the messages among actions: all, or those to one peer."""
    return [action.message for action in actions if isinstance(action, Send) and to in (None, action.peer)]


# --- random values -----------------------------------------------------------------------------------------


def random_message(kind: type, dice: random.Random) -> Message:
    """Return a message of a kind with random values in every field that an honest peer could send."""
    return typing.cast(Message, kind(**_random_fields(kind, dice)))


def random_messages(seed: int, n_of_each: int) -> list[Message]:
    dice = random.Random(seed)
    return [random_message(kind, dice) for kind in CATALOGUE.values() for _ in range(n_of_each)]


def _random_fields(kind: type, dice: random.Random) -> dict[str, object]:
    return {name: _random_value(name, hint, dice) for name, hint in hints_of(kind).items()}


def _random_value(name: str, hint: typing.Any, dice: random.Random) -> object:
    if is_optional(hint):
        return None if dice.random() < 0.3 else _random_value(name, without_none(hint), dice)
    if typing.get_origin(hint) is tuple:
        items = [_random_value("", typing.get_args(hint)[0], dice) for _ in range(dice.randrange(4))]
        return tuple(dict.fromkeys(items))
    if hint is int:
        return dice.randrange(0 if name.startswith(("n_", "max_")) else -(2**63), 2**63)
    if hint is bool:
        return dice.random() < 0.5
    if hint is str:
        return dice.randbytes(8).hex() if name == "client" else "".join(dice.choices('aZ0é∂😀\0\n"', k=dice.randrange(9)))
    return random_message(hint, dice)
