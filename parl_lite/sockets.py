"""Every ZeroMQ socket of the library is made here, with its limits and heartbeats. Knows settings, not messages.

Options act on binds and connects made after them, so all are set before the socket is handed out.
"""

from __future__ import annotations

import os
import random
import socket as sockets_of_the_system
from collections.abc import Sequence

import zmq
from zmq.backend import Socket as BackendSocket

from parl_lite.errors import ParlError
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings

send_frame = BackendSocket.send
"""pyzmq's `send` without what its wrapper does for draft sockets, which costs half a microsecond a frame."""

_PIECE = 32 * 1024 * 1024
_SNDMORE = int(zmq.SNDMORE)
_NEVER_MS = 2**31 - 1
_CONTROL_QUEUE = 100_000
"""So many control messages may wait for one peer; more, and it is taken for dead.

As many may wait to be read: behind a full queue heartbeats wait, too, and a busy process would be taken for dead.
"""
_BACKLOG = 4096
"""So many may knock at a door at once, as when a whole cluster starts; the system's own limit may be lower.

A handle connects once: one that is turned away because the door is crowded would take its actor for lost.
"""
_CONNECT_TIMEOUT = 2.0
"""The system tries to connect less and less often, up to once a minute; tried anew so often a healed link is used soon."""


def control_router(context: zmq.Context[zmq.Socket[bytes]], settings: Settings) -> zmq.Socket[bytes]:
    """Return the master's socket."""
    router = context.socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)  # a peer that is gone is an error, not silence
    router.set(zmq.ROUTER_HANDOVER, 1)  # a peer that connects again takes its name with it
    router.set(zmq.SNDHWM, _CONTROL_QUEUE)
    router.set(zmq.RCVHWM, _CONTROL_QUEUE)
    router.set(zmq.BACKLOG, _BACKLOG)
    router.set(zmq.MAXMSGSIZE, settings.max_control_message)
    _common(router, settings)
    return router


def control_dealer(context: zmq.Context[zmq.Socket[bytes]], settings: Settings, identity: bytes) -> zmq.Socket[bytes]:
    """Return the socket of a worker or a client towards the master."""
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.ROUTING_ID, identity)
    dealer.set(zmq.IMMEDIATE, 1)  # queue nothing for a master that is not there
    dealer.set(zmq.SNDHWM, _CONTROL_QUEUE)
    dealer.set(zmq.RCVHWM, _CONTROL_QUEUE)
    dealer.set(zmq.MAXMSGSIZE, settings.max_control_message)
    dealer.set(zmq.CONNECT_TIMEOUT, _milliseconds(min(_CONNECT_TIMEOUT, settings.liveness_timeout)))
    _common(dealer, settings)
    return dealer


def data_router(context: zmq.Context[zmq.Socket[bytes]], settings: Settings) -> zmq.Socket[bytes]:
    """Return a job's socket towards those who call it."""
    router = context.socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)
    router.set(zmq.SNDHWM, 0)
    router.set(zmq.RCVHWM, 0)
    router.set(zmq.BACKLOG, _BACKLOG)
    router.set(zmq.RCVTIMEO, _milliseconds(settings.poll_slice))  # libzmq can swallow the interruption by a signal
    _common(router, settings)
    return router


def data_dealer(context: zmq.Context[zmq.Socket[bytes]], settings: Settings) -> zmq.Socket[bytes]:
    """Return the socket of one actor handle. It connects once: another job may listen at the address later.

    Not ZMQ_IMMEDIATE, and no ZMQ_RECONNECT_IVL of -1: with either libzmq drops unread answers when the connection breaks.
    """
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.SNDHWM, 0)
    dealer.set(zmq.RCVHWM, 0)
    dealer.set(zmq.RCVTIMEO, _milliseconds(settings.poll_slice))
    dealer.set(zmq.CONNECT_TIMEOUT, _milliseconds(settings.liveness_timeout))  # the system's own is two minutes
    _common(dealer, settings)
    dealer.set(zmq.RECONNECT_IVL, _NEVER_MS)
    dealer.set(zmq.RECONNECT_IVL_MAX, 0)
    return dealer


def send_body(sock: zmq.Socket[bytes], body: bytes) -> None:
    """Send a large payload as the last frames of a message, without a copy.

    Cut into pieces, between which heartbeats pass: a single frame that takes longer than the time-out would break the
    connection.
    """
    pieces = memoryview(body)
    while len(pieces) > _PIECE:
        sock.send(pieces[:_PIECE], _SNDMORE, copy=False)
        pieces = pieces[_PIECE:]
    sock.send(pieces, copy=False)


def receive_body(sock: zmq.Socket[bytes]) -> memoryview:
    """Return the payload that `send_body` sent: one piece without a copy, more of them joined by one."""
    piece = sock.recv(copy=False)
    if not piece.more:
        return piece.buffer
    pieces = [piece.buffer]
    while piece.more:
        piece = sock.recv(copy=False)
        pieces.append(piece.buffer)
    return memoryview(bytearray().join(pieces))


def watch_connection(dealer: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """Return a socket that has something to read as soon as the connection of a `data_dealer` is broken or refused."""
    broken = zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    return dealer.get_monitor_socket(broken | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)


def _common(sock: zmq.Socket[bytes], settings: Settings) -> None:
    sock.set(zmq.LINGER, 0)
    asked = settings.heartbeat_interval  # libzmq's timeout begins when it asks, up to so long after the last sign of life
    sock.set(zmq.HEARTBEAT_IVL, _milliseconds(asked))
    sock.set(zmq.HEARTBEAT_TIMEOUT, _milliseconds(max(asked, settings.liveness_timeout - asked)))
    sock.set(zmq.HANDSHAKE_IVL, _milliseconds(settings.liveness_timeout))
    sock.set(zmq.RECONNECT_IVL, 50)
    sock.set(zmq.RECONNECT_IVL_MAX, 1000)
    sock.set(zmq.IPV6, 1)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def bind_ipc(sock: zmq.Socket[bytes], path: str) -> str:
    """Bind to a file in a folder of this user; return the address."""
    address = f"ipc://{path}"
    sock.bind(address)
    os.chmod(path, 0o600)
    return address


def connect(sock: zmq.Socket[bytes], address: str, key: ClusterKey | None) -> None:
    """Connect; over tcp with the key, if there is one (files are protected by their folder)."""
    if key is not None and address.startswith("tcp://"):
        key.protect_client(sock)
    sock.connect(address)


def bind_tcp(sock: zmq.Socket[bytes], host: str, ports: Sequence[int], key: ClusterKey | None) -> int:
    """Bind to the first port that is free, tried from a random one on; return it. Any port when `ports` is empty.

    With a key only its holders come in; the context needs a `security.Gatekeeper` then.
    """
    if key is not None:
        key.protect_server(sock)
    address = f"tcp://[{host}]" if ":" in host else f"tcp://{host}"
    if not ports:
        sock.bind(f"{address}:*")
        return port_of(sock)
    first = random.SystemRandom().randrange(len(ports))
    for port in [*ports[first:], *ports[:first]]:
        try:
            sock.bind(f"{address}:{port}")
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise ParlError(f"cannot listen on {host} port {port}: {error}.") from None
        else:
            return port
    spread = f"{ports[0]}" if len(ports) == 1 else f"{min(ports)}-{max(ports)}"
    raise ParlError(f"no free port on {host}: {spread} {'is' if len(ports) == 1 else 'are all'} in use.")


def port_of(sock: zmq.Socket[bytes]) -> int:
    """Return the port of the last bind or connect."""
    return int(sock.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0").rpartition(":")[2])


def parse_address(text: str) -> str:
    """Return the ZeroMQ address of what a user wrote: HOST:PORT, [V6]:PORT, tcp://... or ipc://...; raises ValueError.

    A name becomes an IP address.
    """
    if text.startswith("ipc://"):
        return text
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address: write HOST:PORT, for instance 10.0.0.1:8010.")
    host = ip_of(host.strip("[]"))
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def ip_of(host: str) -> str:
    """Return the IP address of a name, IPv4 if it has one; a name that is not known is returned as it is.

    Of a name that has both, as "localhost" mostly has, libzmq would take the IPv6 address, where few masters listen.
    """
    try:
        found = sockets_of_the_system.getaddrinfo(host, None, type=sockets_of_the_system.SOCK_STREAM)
    except (OSError, UnicodeError):
        return host
    ordered = sorted(found, key=lambda entry: entry[0] != sockets_of_the_system.AF_INET)
    return str(ordered[0][4][0])
