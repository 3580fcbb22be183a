"""HOST:PORT texts, port ranges, and which addresses are this machine's. Knows no socket of ours and no protocol."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from parl_lite import hostos

LOOPBACK = "127.0.0.1"
_WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}
_ELSEWHERE = "198.51.100.1"
"""An address kept for documentation (RFC 5737): only a default route leads there, and nothing is sent."""


def join(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or tcp://HOST:PORT, without brackets."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def port_range(text: str) -> tuple[int, int]:
    """Return (first, last + 1) of A-B; raises ValueError that says what to write."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 65536):
        raise ValueError(f"--ports {text!r} is no range of ports: write A-B, for instance 20000-20050.")
    return int(first), int(last) + 1


def reachable(host: str) -> str:
    """Return where a process of this machine reaches one that listens on `host`."""
    return _WILDCARDS.get(host, host)


def advertised(host: str) -> str:
    """Return where other machines reach a process that listens on `host`; works without any network."""
    return outward() if host in _WILDCARDS else host


def interface_of(host: str) -> str:
    """Return where to listen so that others reach it at `host`: there, or on all interfaces when it is not one of ours."""
    if not host or is_of_this_machine(host):
        return host
    return "::" if ":" in host else "0.0.0.0"


def outward() -> str:
    """Return the address of the interface that leads out, else of any that is up, else the loopback address."""
    try:
        return hostos.address_towards(_ELSEWHERE, 9)
    except OSError:
        up = [name for name, state in psutil.net_if_stats().items() if state.isup]
        mine = [entry.address for name in up for entry in psutil.net_if_addrs().get(name, ())]
        return next((text for text in mine if _is_plain_ipv4(text)), LOOPBACK)


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_of_this_machine(host: str) -> bool:
    """Return whether a socket can be bound to `host`: the one test that knows every kind of interface."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _is_plain_ipv4(text: str) -> bool:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local)
