"""Calls on one machine go by a lane beside ZeroMQ: same order, same results, same losses, and no file left."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import until
from patients import Ledger, Patient

import parl_lite
from parl_lite import hostos, lanes
from parl_lite.proxy import _channel, destroy

pytestmark = pytest.mark.skipif(not hasattr(socket, "SOCK_SEQPACKET"), reason="this system has no such sockets")

SIZES = (0, 10, 10_000, 60_000, 70_000, 120_000, 400_000)
"""In bytes: by the lane, by a detour through ZeroMQ, through shared memory."""


@parl_lite.remote_class
class Echo:
    """Answers, and counts."""

    def __init__(self) -> None:
        self.n = 0

    def number(self, array: np.ndarray) -> tuple[int, np.ndarray]:
        self.n += 1
        return self.n, array

    def ask(self, other, size: int) -> int:
        return len(other.echo(np.zeros(size, np.uint8)))


def by_lane(actor: Any) -> bool:
    """Call until the lane is there."""

    def found() -> bool:
        actor.n  # noqa: B018
        return _channel(actor)._line.has_lane

    return bool(until(found, 10.0, "a lane"))


def entrance_of(actor: Any) -> list[Path]:
    """Return the file at which lanes to an actor begin, if there is one."""
    return list(hostos.runtime_folder().glob(f"**/l{actor._parl_link.address.job}"))


@pytest.mark.parametrize("seed", range(5))
def test_sizes_of_all_kinds_keep_their_order(cluster, seed):
    chance = random.Random(seed)
    actor = Echo()
    assert by_lane(actor)
    sizes = [chance.choice(SIZES) for _ in range(100)]
    futures = [actor.futures.number(np.full(size, size % 251, np.uint8)) for size in sizes]
    for i, (future, size) in enumerate(zip(futures, sizes, strict=True)):
        n, array = future.result()
        assert n == i + 1
        assert len(array) == size and bool((array == size % 251).all())
        array[:] = 0  # private, as ever
    assert _channel(actor)._line.has_lane


def test_more_calls_than_a_lane_holds_wait_for_nobody_and_keep_their_order(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(lanes, "_ROOM", 16 * 1024)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    actor = Ledger()
    assert until(lambda: actor.total() == 0 and _channel(actor)._line.has_lane, 10.0, "a lane")
    busy = actor.futures.wait_for(str(gate))
    futures = [actor.futures.add(i) for i in range(1000)]
    assert not _channel(actor)._line.has_lane  # it was full once; ZeroMQ has no such bound
    gate.write_text("on")
    assert busy.result() == "on"
    assert [future.result() for future in futures] == list(range(1000))
    assert actor.total() == 1000


def test_threads_share_a_lane(cluster):
    actor = Echo()
    assert by_lane(actor)
    found: list[int] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(50):
            size = chance.choice(SIZES)
            n, array = actor.number(np.zeros(size, np.uint8))
            assert len(array) == size
            found.append(n)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 201))


def test_results_that_came_by_the_lane_outlive_the_actor(cluster):
    actor = Ledger()
    assert until(lambda: actor.total() == 0 and _channel(actor)._line.has_lane, 10.0, "a lane")
    pid = actor.pid()
    futures = [actor.futures.add(i) for i in range(20)]
    until(lambda: futures[-1].done(), 10.0, "the last result")
    more = [actor.futures.pid() for _ in range(20)]
    os.kill(pid, signal.SIGKILL)
    assert [future.result() for future in futures] == list(range(20))
    for future in more:
        try:
            assert future.result() == pid
        except parl_lite.ActorLostError as error:
            assert error.signal == signal.SIGKILL
    with pytest.raises(parl_lite.ActorLostError):
        actor.total()


def test_a_handle_that_was_sent_has_a_lane_of_its_own(cluster):
    actor, other = Echo(), Patient()
    assert [actor.ask(other, size) for size in SIZES] == list(SIZES)
    assert len(other.echo(np.zeros(3))) == 3


@pytest.mark.parametrize("kill", [False, True])
def test_no_file_is_left_of_an_actor(cluster, kill):
    actor = Patient()
    pid = actor.pid()
    assert until(lambda: entrance_of(actor), 10.0, "an entrance")[0].is_socket()
    if kill:
        os.kill(pid, signal.SIGKILL)
    else:
        destroy(actor)
    assert until(lambda: not entrance_of(actor), 10.0, "the end of it")
