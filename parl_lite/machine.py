"""What all pure protocol machines share: their events, their actions, their shape. Knows no socket, clock, thread or random.

A machine is handed what happened and the time, and returns what should be done:

    handle(event, now) -> [action, ...]     changes the state; the only way to change it
    deadline()         -> when it wants a `Woke` event at the latest, or None
    check()            -> asserts its invariants (for tests)

A `Loop` performs the actions. Peers are named by their ZeroMQ routing id; a machine whose one peer is the master calls it MASTER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from parl_lite.messages import Message

REFUSALS = 3
"""A handshake that failed so often will not succeed: the listener is another, or the key."""

MASTER = b""
"""The one peer of a worker and of a client."""


# --- events: what happened ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """A valid message came from a peer."""

    peer: bytes
    message: Message


@dataclass(frozen=True)
class Babbled:
    """A peer sent bytes that are no message, or a message that is not its to send."""

    peer: bytes
    reason: str


@dataclass(frozen=True)
class PeerLost:
    """The connection of a peer (of the master) is gone."""

    peer: bytes


@dataclass(frozen=True)
class Connected:
    """The connection to the master stands (again)."""


@dataclass(frozen=True)
class Disconnected:
    """The connection to the master broke."""


@dataclass(frozen=True)
class HandshakeFailed:
    """The master, or whatever listens there, hung up before a word was said: another key, no key, another protocol.

    `final`: it said why, and libzmq will not try again.
    """

    final: bool = False


@dataclass(frozen=True)
class Interrupted:
    """This process was asked to end: by a signal, or because the process it belongs to ended."""

    reason: str


@dataclass(frozen=True)
class Woke:
    """The deadline came."""


# --- actions: what to do -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to a peer; a peer that is gone is no error."""

    peer: bytes
    message: Message


@dataclass(frozen=True)
class Say:
    """Write a line to the log of this process."""

    text: str


@dataclass(frozen=True)
class Finish:
    """Leave the loop; the process ends with this code."""

    code: int
    reason: str


EventT = TypeVar("EventT", contravariant=True)
ActionT = TypeVar("ActionT", covariant=True)


class Machine(Protocol[EventT, ActionT]):
    """The shape of every pure protocol machine."""

    def handle(self, event: EventT, now: float) -> Sequence[ActionT]:
        """Take in what happened at time `now` (seconds, monotonic) and return what to do."""

    def deadline(self) -> float | None:
        """Return when to send `Woke` at the latest, or None."""

    def peers(self) -> Sequence[bytes]:
        """Return the peers whose connections should be watched."""

    def check(self) -> None:
        """Assert the invariants."""


def assert_never(value: NoReturn) -> NoReturn:
    """Let the type checker prove that a match is closed (typing.assert_never needs Python 3.11)."""
    raise AssertionError(f"unhandled: {value!r}")
