"""Addresses as users write them, ports from a range, and sockets with their limits."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from parl_lite import sockets
from parl_lite.errors import ParlError
from parl_lite.settings import Settings

SETTINGS = Settings()
LOOPBACK = "127.0.0.1"
Context = zmq.Context[zmq.Socket[bytes]]
MAKERS: list[Callable[[Context], zmq.Socket[bytes]]] = [
    lambda context: sockets.control_router(context, SETTINGS),
    lambda context: sockets.control_dealer(context, SETTINGS, b"me"),
    lambda context: sockets.data_router(context, SETTINGS),
    lambda context: sockets.data_dealer(context, SETTINGS),
]


@pytest.fixture
def context() -> Iterator[Context]:
    context: Context = zmq.Context()
    yield context
    context.destroy(0)


@pytest.fixture
def router(context: Context) -> Iterator[zmq.Socket[bytes]]:
    with sockets.control_router(context, SETTINGS) as router:
        yield router


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Two ports that somebody listens on."""
    with socket.create_server((LOOPBACK, 0)) as one, socket.create_server((LOOPBACK, 0)) as two:
        yield sorted([one.getsockname()[1], two.getsockname()[1]])


# Addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:8010", "tcp://10.0.0.1:8010"),
        ("tcp://10.0.0.1:8010", "tcp://10.0.0.1:8010"),
        ("[::1]:65535", "tcp://[::1]:65535"),
        ("tcp://[fe80::1]:1", "tcp://[fe80::1]:1"),
        ("::1:8010", "tcp://[::1]:8010"),
        ("ipc:///tmp/x/master", "ipc:///tmp/x/master"),
    ],
)
def test_an_address_may_be_written_in_several_ways(text: str, address: str) -> None:
    assert sockets.parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "8010", "host", "host:", ":8010", "host:port", "host:0", "host:65536", "host:-1", "host:80.5", "host:²", "http://host"],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        sockets.parse_address(text)
    assert str(caught.value) == f"{text!r} is not an address: write HOST:PORT, for instance 10.0.0.1:8010."


def test_a_name_with_both_kinds_of_addresses_becomes_the_ipv4_one(monkeypatch: pytest.MonkeyPatch) -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (LOOPBACK, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [six, four])
    assert sockets.parse_address("localhost:8010") == f"tcp://{LOOPBACK}:8010"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [six])
    assert sockets.parse_address("localhost:8010") == "tcp://[::1]:8010"


def test_a_name_that_nobody_knows_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object, **options: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert sockets.parse_address("nowhere.invalid:8010") == "tcp://nowhere.invalid:8010"
    assert sockets.ip_of("x" * 300) == "x" * 300


# Ports


def test_without_a_range_any_port_will_do(router: zmq.Socket[bytes]) -> None:
    port = sockets.bind_tcp(router, LOOPBACK, [], None)
    assert port == sockets.port_of(router) > 0


def test_a_port_of_the_range_that_is_free_is_found(router: zmq.Socket[bytes], taken: list[int]) -> None:
    with socket.create_server((LOOPBACK, 0)) as probe:
        free = probe.getsockname()[1]
    assert sockets.bind_tcp(router, LOOPBACK, [*taken, free], None) == free
    assert sockets.port_of(router) == free


def test_an_exhausted_range_is_named(router: zmq.Socket[bytes], taken: list[int]) -> None:
    with pytest.raises(ParlError) as caught:
        sockets.bind_tcp(router, LOOPBACK, taken, None)
    assert str(caught.value) == f"no free port on {LOOPBACK}: {taken[0]}-{taken[1]} are all in use."


def test_a_single_port_that_is_taken_is_named(router: zmq.Socket[bytes], taken: list[int]) -> None:
    with pytest.raises(ParlError) as caught:
        sockets.bind_tcp(router, LOOPBACK, taken[:1], None)
    assert str(caught.value) == f"no free port on {LOOPBACK}: {taken[0]} is in use."


def test_a_host_that_is_not_this_machine_is_named_at_once(router: zmq.Socket[bytes]) -> None:
    with pytest.raises(ParlError, match=r"cannot listen on 198\.51\.100\.1 port 20001: "):
        sockets.bind_tcp(router, "198.51.100.1", [20001, 20001], None)


def test_an_ipv6_host_can_be_listened_on(router: zmq.Socket[bytes]) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    port = sockets.bind_tcp(router, "::1", [], None)
    assert router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0") == f"tcp://[::1]:{port}"


# Files


def test_the_file_of_a_socket_is_private(router: zmq.Socket[bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="pl", dir="/tmp") as folder:  # a socket's path has room for 107 bytes
        address = sockets.bind_ipc(router, f"{folder}/master")
        assert address == f"ipc://{folder}/master"
        assert stat.S_IMODE(Path(folder, "master").stat().st_mode) == 0o600


# Limits


@pytest.mark.parametrize("make", MAKERS)
def test_every_socket_has_heartbeats_and_leaves_nothing_behind(
    make: Callable[[Context], zmq.Socket[bytes]], context: Context
) -> None:
    with make(context) as made:
        assert made.get(zmq.LINGER) == 0
        assert made.get(zmq.HEARTBEAT_IVL) == 1000 * SETTINGS.heartbeat_interval
        silent = made.get(zmq.HEARTBEAT_IVL) + made.get(zmq.HEARTBEAT_TIMEOUT)  # the timeout begins with a question
        assert silent == 1000 * SETTINGS.liveness_timeout


@pytest.mark.parametrize("make", MAKERS[:2])
def test_control_sockets_refuse_messages_over_the_limit(make: Callable[[Context], zmq.Socket[bytes]], context: Context) -> None:
    with make(context) as made:
        assert made.get(zmq.MAXMSGSIZE) == SETTINGS.max_control_message


@pytest.mark.parametrize("make", MAKERS[2:])
def test_data_sockets_look_up_now_and_then_and_drop_nothing(
    make: Callable[[Context], zmq.Socket[bytes]], context: Context
) -> None:
    with make(context) as made:
        assert made.get(zmq.RCVTIMEO) == 1000 * SETTINGS.poll_slice
        assert made.get(zmq.RCVHWM) == made.get(zmq.SNDHWM) == 0
        assert made.get(zmq.MAXMSGSIZE) == -1


def test_a_message_to_nobody_is_an_error_and_not_silence(router: zmq.Socket[bytes]) -> None:
    with pytest.raises(zmq.ZMQError) as caught:
        router.send_multipart([b"nobody", b"hello"], zmq.DONTWAIT)
    assert caught.value.errno == zmq.EHOSTUNREACH


def test_nothing_is_queued_for_a_master_that_is_not_there(context: Context, taken: list[int]) -> None:
    with sockets.control_dealer(context, SETTINGS, b"me") as dealer:
        sockets.connect(dealer, f"tcp://{LOOPBACK}:{taken[0]}", None)
        with pytest.raises(zmq.Again):
            dealer.send(b"hello", zmq.DONTWAIT)


# Large payloads


@pytest.mark.parametrize("n_bytes", [0, 9, 10, 11, 20, 25])
def test_a_large_payload_travels_in_pieces(n_bytes: int, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_PIECE", 10)
    with context.socket(zmq.PAIR) as sender, context.socket(zmq.PAIR) as receiver:
        receiver.bind("inproc://pieces")
        sender.connect("inproc://pieces")
        body = bytes(range(n_bytes))
        sockets.send_body(sender, body)
        sockets.send_body(sender, b"next")
        assert bytes(sockets.receive_body(receiver)) == body
        assert bytes(sockets.receive_body(receiver)) == b"next"
