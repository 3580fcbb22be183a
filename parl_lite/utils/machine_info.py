"""What this machine has: an address, GPUs, free ports. Asks no other machine."""

from __future__ import annotations

import random
import socket

import psutil

from parl_lite.utils import logger


def get_ip_address() -> str | None:
    """Return the IPv4 address by which others are likely to reach this machine, or None with a warning.

    It is that of the default route's network card, or else the first of any card that is up.
    """
    candidates = [*_address_of_default_route(), *_addresses_of_cards()]
    found = next((address for address in candidates if not address.startswith(("127.", "0."))), None)
    if found is None:
        logger.warning("this machine has no address but its own: name one yourself")
    return found


def get_gpu_count() -> int:
    """Return the number of GPUs that torch can use; CUDA_VISIBLE_DEVICES counts."""
    import torch

    return torch.cuda.device_count()


def is_gpu_available() -> bool:
    """Return whether torch can use a GPU."""
    return get_gpu_count() > 0


def get_free_tcp_port() -> str:
    """Return a port that nobody uses at this moment, as text; it is not reserved."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


def is_port_available(port: int | str) -> bool:
    """Return whether this process could listen on `port` at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection that just ended is nobody
        try:
            probe.bind(("", int(port)))
        except OSError:
            return False
    return True


def get_port_from_range(start: int, end: int) -> int:
    """Return a free port between `start` and `end`, both included; raises OSError when there is none."""
    for port in random.sample(range(start, end + 1), end + 1 - start):
        if is_port_available(port):
            return port
    raise OSError(f"no port from {start} to {end} is free: give a wider range")


def _address_of_default_route() -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for examples (RFC 5737); no packet is sent
        except OSError:
            return []
        return [str(probe.getsockname()[0])]


def _addresses_of_cards() -> list[str]:
    up = {name for name, card in psutil.net_if_stats().items() if card.isup}
    cards = [addresses for name, addresses in psutil.net_if_addrs().items() if name in up]
    return [found.address for addresses in cards for found in addresses if found.family == socket.AF_INET]
