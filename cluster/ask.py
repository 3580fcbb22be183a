"""One question to a master, one answer, from a process that belongs to no cluster. Knows not what questions are for."""

from __future__ import annotations

import secrets
import socket
import time
from typing import TypeVar

import zmq

from parl_lite import wire
from parl_lite.errors import NotConnectedError, ParlError
from parl_lite.messages import Message, Refused
from parl_lite.settings import Settings
from parl_lite.sockets import control_dealer

from . import addresses

AnswerT = TypeVar("AnswerT")

_PROBE_TIMEOUT = 2.0


def ask(address: str, question: Message, kind: type[AnswerT], timeout: float, settings: Settings) -> AnswerT:
    """Send a question to the master at a ZeroMQ address, as soon as there is one; return its answer of this kind.

    Raises NotConnectedError when none has come after `timeout` seconds, ParlError when the master refuses.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = control_dealer(context, settings, secrets.token_bytes(8).replace(b"\0", b"\1"))
    dealer.set(zmq.IMMEDIATE, 0)  # with 1, libzmq drops unread what a peer said right before it closed
    dealer.set(zmq.IMMEDIATE, 0)  # with 1, libzmq drops unread what a peer said right before it closed
    deadline = time.monotonic() + timeout
    try:
        dealer.connect(address)
        dealer.set(zmq.SNDTIMEO, _milliseconds_until(deadline))
        dealer.send_multipart(wire.encode(question))
        while True:
            dealer.set(zmq.RCVTIMEO, _milliseconds_until(deadline))
            message = _message(dealer.recv_multipart(), settings)
            if isinstance(message, kind):
                return message
            if isinstance(message, Refused):
                raise ParlError(f"the master at {plain(address)} refuses: {message.reason}.")
    except zmq.Again:
        raise NotConnectedError(why_silent(address, timeout)) from None
    except wire.WireError as error:
        where = f"the master at {plain(address)} speaks another protocol ({error})"
        raise ParlError(f"{where}: install the same parl_lite there and here.") from None
    finally:
        context.destroy(0)


def somebody_listens(address: str) -> bool:
    """Return whether a connection to a ZeroMQ address can be made; True for what cannot be tried so."""
    return not _why_refused(address)


def insist_on_listener(address: str) -> None:
    """Raise NotConnectedError at once when nobody listens at a ZeroMQ address."""
    refusal = _why_refused(address)
    if refusal:
        raise NotConnectedError(refusal)


def why_silent(address: str, timeout: float) -> str:
    """Return one sentence on why no master answered at a ZeroMQ address for `timeout` seconds."""
    if not address.startswith("tcp://"):
        return f"no master answers at {address}."
    silence = f"something listens at {plain(address)}, but it did not answer as a parl_lite master within {timeout:g} s"
    return _why_refused(address) or f"{silence}: check the address and the port."


def plain(address: str) -> str:
    """Return a ZeroMQ address as users write it."""
    return address.removeprefix("tcp://")


def _why_refused(address: str) -> str:
    if not address.startswith("tcp://"):
        return ""
    try:
        with socket.create_connection(addresses.split(address), timeout=_PROBE_TIMEOUT):
            return ""
    except OSError as error:
        reason = error.strerror or str(error)
        return f"no master listens at {plain(address)} ({reason}): start one there with `parl-lite start`."


def _message(frames: list[bytes], settings: Settings) -> Message | None:
    return None if frames == [b""] else wire.decode(frames, settings.max_control_message)  # an empty frame is a probe


def _milliseconds_until(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1000))
