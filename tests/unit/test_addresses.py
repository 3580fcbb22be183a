"""Addresses as users write them, and which of them are this machine's."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from parl_lite import hostos
from parl_lite.cluster import addresses
from parl_lite.sockets import ip_of, parse_address


@pytest.mark.parametrize(("host", "port", "text"), [("10.0.0.1", 8010, "10.0.0.1:8010"), ("fd00::2", 1, "[fd00::2]:1")])
def test_host_and_port_are_joined_and_split(host: str, port: int, text: str) -> None:
    assert addresses.join(host, port) == text
    assert addresses.split(text) == addresses.split(f"tcp://{text}") == (host, port)


def test_a_range_of_ports_includes_its_last() -> None:
    assert addresses.port_range("20000-20050") == (20000, 20051)
    assert addresses.port_range("8010-8010") == (8010, 8011)


@pytest.mark.parametrize("text", ["20000", "20050-20000", "0-10", "1-65536", "a-b", "", "-5", "1-2-3"])
def test_what_is_no_range_of_ports_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write A-B, for instance 20000-20050"):
        addresses.port_range(text)


def test_a_listener_on_all_networks_is_reached_by_loopback_from_here_and_by_name_from_elsewhere() -> None:
    assert addresses.reachable("0.0.0.0") == "127.0.0.1"
    assert addresses.reachable("::") == "::1"
    assert addresses.reachable("10.0.0.1") == addresses.advertised("10.0.0.1") == "10.0.0.1"
    assert addresses.advertised("0.0.0.0") == addresses.outward()


def test_the_way_out_is_an_address_of_this_machine() -> None:
    assert addresses.is_of_this_machine(addresses.outward())
    assert addresses.outward() not in ("0.0.0.0", "127.0.1.1")


def test_without_a_route_out_any_interface_that_is_up_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(host: str, port: int) -> str:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(hostos, "address_towards", unreachable)
    assert addresses.is_of_this_machine(addresses.outward())
    monkeypatch.setattr(addresses.psutil, "net_if_addrs", dict)
    assert addresses.outward() == "127.0.0.1"


def test_an_address_of_a_router_is_served_on_all_interfaces() -> None:
    assert addresses.interface_of("127.0.0.1") == "127.0.0.1"
    assert addresses.interface_of("198.51.100.7") == "0.0.0.0"
    assert addresses.interface_of("") == ""


@pytest.mark.parametrize(("host", "inside"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("node1", False)])
def test_loopback_is_told_from_the_rest(host: str, inside: bool) -> None:
    assert addresses.is_loopback(host) == inside


def test_a_name_with_both_kinds_of_address_becomes_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr("socket.getaddrinfo", both)
    assert ip_of("localhost") == "127.0.0.1"
    assert parse_address("localhost:8010") == "tcp://127.0.0.1:8010"


def test_addresses_are_read_in_every_form_users_write() -> None:
    assert parse_address("127.0.0.1:8010") == parse_address("tcp://127.0.0.1:8010") == "tcp://127.0.0.1:8010"
    assert parse_address("[::1]:8010") == "tcp://[::1]:8010"
    assert parse_address("no-such-host.invalid:8010") == "tcp://no-such-host.invalid:8010"
    assert parse_address("ipc:///tmp/x/master") == "ipc:///tmp/x/master"
