"""One question to a master, one answer, from a process that belongs to no cluster. Knows not what questions are for."""

from __future__ import annotations

import secrets
import socket
import time
from typing import TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from parl_lite import keys, sockets, wire
from parl_lite.errors import NotConnectedError, ParlError
from parl_lite.listener import why_silent
from parl_lite.machine import REFUSALS
from parl_lite.messages import Message, Refused
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings

from . import addresses

AnswerT = TypeVar("AnswerT")

_PROBE_TIMEOUT = 2.0
_HUNG_UP = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


def ask(
    address: str,
    question: Message,
    kind: type[AnswerT],
    timeout: float,
    settings: Settings,
    key: ClusterKey | None = None,
) -> AnswerT:
    """Send a question to the master at a ZeroMQ address, as soon as there is one; return its answer of this kind.

    Without a key the one is taken that is found for this address. Raises NotConnectedError when no answer has come after
    `timeout` seconds, AuthenticationError when it needs another key, ParlError when the master refuses.
    """
    if key is None:
        return keys.with_key_for(address, None, lambda found: _ask(address, question, kind, timeout, settings, found))
    return _ask(address, question, kind, timeout, settings, key)


def _ask(
    address: str, question: Message, kind: type[AnswerT], timeout: float, settings: Settings, key: ClusterKey | None
) -> AnswerT:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = sockets.control_dealer(context, settings, secrets.token_bytes(8).replace(b"\0", b"\1"))
    dealer.set(zmq.IMMEDIATE, 0)  # with 1, libzmq drops unread what a peer said right before it closed
    monitor: zmq.Socket[bytes] = dealer.get_monitor_socket(_HUNG_UP | _REFUSED)
    try:
        sockets.connect(dealer, address, key)
        dealer.send_multipart(wire.encode(question), zmq.DONTWAIT)
        return _answer(dealer, monitor, kind, time.monotonic() + timeout, settings)
    except (TimeoutError, zmq.Again):  # nothing can be sent when the master has refused us already
        raise why_silent(address, key is not None, timeout) from None
    except wire.WireError as error:
        where = f"the master at {plain(address)} speaks another protocol ({error})"
        raise ParlError(f"{where}: install the same parl_lite there and here.") from None
    finally:
        dealer.disable_monitor()
        monitor.close(0)
        context.destroy(0)


def _answer(
    dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes], kind: type[AnswerT], deadline: float, settings: Settings
) -> AnswerT:
    """Return the first message of this kind; raises TimeoutError, also when the handshake was refused for good."""
    poller = zmq.Poller()
    poller.register(dealer, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    n_refusals = 0
    while n_refusals < REFUSALS and time.monotonic() < deadline:
        ready = dict(poller.poll(max(0, int((deadline - time.monotonic()) * 1000))))
        if monitor in ready:
            n_refusals += REFUSALS if recv_monitor_message(monitor)["event"] & _REFUSED else 1
        if dealer in ready:
            message = _message(dealer.recv_multipart(), settings)
            if isinstance(message, kind):
                return message
            if isinstance(message, Refused):
                raise ParlError(f"the master refuses: {message.reason}.")
    raise TimeoutError


def somebody_listens(address: str) -> bool:
    """Return whether a connection to a ZeroMQ address can be made; True for what cannot be tried so."""
    return not _why_refused(address)


def insist_on_listener(address: str) -> None:
    """Raise NotConnectedError at once when nobody listens at a ZeroMQ address."""
    word = _why_refused(address)
    if word:
        raise NotConnectedError(f"no master listens at {plain(address)} ({word}): start one there with `parl-lite start`.")


def plain(address: str) -> str:
    """Return a ZeroMQ address as users write it."""
    return address.removeprefix("tcp://")


def _why_refused(address: str) -> str:
    """Return the system's word when no connection can be made; who listens is not waited for: it may be frozen."""
    if not address.startswith("tcp://"):
        return ""
    try:
        with socket.create_connection(addresses.split(address), timeout=_PROBE_TIMEOUT):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _message(frames: list[bytes], settings: Settings) -> Message | None:
    return None if frames == [b""] else wire.decode(frames, settings.max_control_message)  # an empty frame is a probe
