"""@batched with real processes: one actor serves the calls of many threads, handles and processes together."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import alive, helpers_rest, until

import parl_lite

LONG = 30.0
"""A timeout that no test waits for: a batch that starts is full."""


@parl_lite.remote_class
class Server:
    """Remembers how large its batches were, and in which order it was called."""

    def __init__(self, hides: bool = False) -> None:
        self.sizes: list[int] = []
        self.seen: list = []
        if hides:
            self.act = abs

    @parl_lite.batched(max_size=16, timeout=0.05)
    def act(self, obs):
        self.sizes.append(len(obs))
        if np.any(obs["x"] < 0) if isinstance(obs, dict) else np.any(obs < 0):
            raise ValueError("negative")
        return 2 * obs

    @parl_lite.batched(max_size=4, timeout=LONG)
    def four(self, obs, *, bonus=0.0):
        self.seen += obs.tolist()
        self.sizes.append(len(obs))
        return {"twice": 2 * obs, "sum": obs + bonus}

    @parl_lite.batched(max_size=2, timeout=LONG)
    def wrong(self, obs):
        return obs[:1]

    @parl_lite.batched(max_size=1, timeout=LONG)
    def alone(self, obs):
        return obs * len(obs)

    @parl_lite.batched(max_size=2, timeout=LONG)
    def leave(self, code):
        raise SystemExit(int(code[0]))

    @parl_lite.batched(timeout=0.0)
    def act_now(self, obs):
        self.sizes.append(len(obs))
        return 2 * obs

    @parl_lite.batched(max_size=1)
    def __call__(self, obs):
        return obs + len(obs)

    def note(self, value) -> None:
        self.seen.append(value)

    def pid(self) -> int:
        return os.getpid()

    def stand_still(self, path: str) -> None:
        """Return when there is a file of this name."""
        while not os.path.exists(path):
            time.sleep(0.002)


@parl_lite.remote_class
class Patient:
    """Counts how often its process waits."""

    def __init__(self) -> None:
        self.n_waits = 0
        original = select.select

        def counting(*arguments):
            self.n_waits += 1
            return original(*arguments)

        select.select = counting

    @parl_lite.batched(timeout=0.25)
    def act(self, obs):
        return obs


@parl_lite.remote_class
class Caller:
    """Calls a server from a process of its own."""

    def __init__(self, server) -> None:
        self.server = server

    def pid(self) -> int:
        return os.getpid()

    def call(self, first: int, n: int) -> list[float]:
        return [float(self.server.act(np.float32(first + i))) for i in range(n)]

    def begin_four(self, x: float) -> None:
        """Make a call without waiting for its result, and one right before it that can be seen."""
        self.server.futures.note("here")
        self.future = self.server.futures.four(x)

    def end_four(self) -> float:
        return self.future.result()["twice"]


@pytest.fixture
def two_callers(cluster):
    """A server that two others call."""
    server = Server()
    return server, [Caller(server) for _ in range(2)]


@pytest.fixture
def server(cluster):
    return Server()


@contextmanager
def standing_still(server, folder) -> Iterator[None]:
    """Let the calls that are made meanwhile be there together."""
    gate = folder / "gate"
    pid = server.pid()
    server.futures.stand_still(str(gate))
    yield
    for sender_then_receiver in (os.getpid(), pid):
        until(lambda pid=sender_then_receiver: helpers_rest(pid), 5, "what was sent has arrived")
    gate.touch()


@pytest.mark.parametrize("n_threads", [1, 2, 16])
def test_threads_are_served_together_and_each_gets_its_own_row(server, n_threads):
    def work(thread: int) -> None:
        for i in range(10):
            obs = np.full((2, 3), 100 * thread + i, np.float32)
            assert (server.act(obs) == 2 * obs).all()

    with ThreadPoolExecutor(n_threads) as pool:
        for done in [pool.submit(work, thread) for thread in range(n_threads)]:
            done.result()
    sizes = server.sizes
    assert sum(sizes) == 10 * n_threads and max(sizes) <= 16
    assert max(sizes) > 1 or n_threads == 1


def test_processes_are_served_together(two_callers):
    server, callers = two_callers
    futures = [caller.futures.call(1000 * i, 20) for i, caller in enumerate(callers)]
    for i, future in enumerate(futures):
        assert future.result() == [2.0 * (1000 * i + k) for k in range(20)]
    assert sum(server.sizes) == 40 and max(server.sizes) > 1


def test_a_full_batch_does_not_wait(server):
    futures = [server.futures.four(float(i), bonus=10.0 * i) for i in range(8)]
    for i, future in enumerate(futures):
        assert future.result(timeout=LONG / 2) == {"twice": 2.0 * i, "sum": 11.0 * i}
    assert server.sizes == [4, 4]


def test_a_batch_that_does_not_fill_starts_after_its_timeout(server, tmp_path):
    with standing_still(server, tmp_path):
        futures = [server.futures.act(float(i)) for i in range(3)]
    assert [future.result() for future in futures] == [0, 2, 4]
    assert server.sizes == [3]


def test_with_a_timeout_of_zero_calls_gather_while_the_actor_is_busy(server, tmp_path):
    with standing_still(server, tmp_path):
        futures = [server.futures.act_now(float(i)) for i in range(3)]
    assert [future.result() for future in futures] == [0, 2, 4]
    assert server.act_now(np.ones(2)).tolist() == [2, 2]
    assert server.sizes == [3, 1]


def test_a_batch_of_one_has_the_first_axis(server):
    assert server.alone(np.ones(2)).tolist() == [1, 1]
    assert server(5) == 6  # __call__ too


def test_a_batch_that_waits_for_more_does_so_without_a_busy_loop(cluster):
    patient = Patient()
    before = patient.n_waits
    assert patient.act(1) == 1
    assert patient.n_waits - before < 50


def test_a_batch_that_waits_holds_up_no_other_handle(two_callers):
    server, (caller, _) = two_callers
    caller.begin_four(1.0)
    until(lambda: server.seen == ["here"], 10, "the call was made")  # reading needs not wait
    futures = [server.futures.four(float(i)) for i in range(2, 5)]
    assert [future.result(timeout=LONG / 2)["twice"] for future in futures] == [4, 6, 8]
    assert caller.end_four() == 2.0


def test_calls_of_one_handle_run_in_order(server):
    server.futures.note("first")
    two = [server.futures.four(float(i)) for i in range(4)]
    server.futures.note("middle")
    four = [server.futures.four(float(i)) for i in range(4, 8)]
    server.note("last")
    parl_lite.get(two + four)
    assert server.seen == ["first", 0.0, 1.0, 2.0, 3.0, "middle", 4.0, 5.0, 6.0, 7.0, "last"]


# Errors


def test_an_error_comes_to_every_caller_of_the_batch(server, tmp_path):
    with standing_still(server, tmp_path):
        futures = [server.futures.act(float(i) - 1) for i in range(3)]
    for future in futures:
        with pytest.raises(ValueError, match="negative") as caught:
            future.result()
        assert isinstance(caught.value, parl_lite.RemoteError)
        assert "in act" in caught.value.remote_traceback and "job" not in caught.value.remote_traceback
    assert server.act(1.0) == 2.0


def test_calls_that_cannot_be_stacked_run_apart(server):
    futures = [server.futures.act(np.ones(shape)) for shape in (2, 3, 2)]
    assert [future.result().shape for future in futures] == [(2,), (3,), (2,)]
    assert server.sizes == [1, 1, 1]


def test_a_call_that_cannot_be_stacked_costs_the_others_nothing(server):
    good, bad, fine = server.futures.act(1.0), server.futures.act("text"), server.futures.act(2.0)
    assert (good.result(), fine.result()) == (2.0, 4.0)
    with pytest.raises(parl_lite.ParlError, match=r"Server.act is batched: its args\[0\] is a str, which cannot"):
        bad.result()


def test_a_result_of_another_size_is_an_error_that_says_so(server):
    futures = [server.futures.wrong(float(i)) for i in range(2)]
    for future in futures:
        with pytest.raises(parl_lite.ParlError, match=r"Server.wrong .* of shape \(1,\), .* first axis is the batch of 2"):
            future.result()


def test_a_call_that_was_cancelled_takes_no_part(server, tmp_path):
    with standing_still(server, tmp_path):
        futures = [server.futures.four(float(i)) for i in range(5)]
        assert futures[1].cancel()
    assert [futures[i].result()["twice"] for i in (0, 2, 3, 4)] == [0, 4, 6, 8]
    with pytest.raises(CancelledError):
        futures[1].result()
    assert server.sizes == [4]


def test_an_actor_that_ends_in_a_batch_is_lost_to_all_its_callers(server):
    futures = [server.futures.leave(5) for _ in range(2)]
    for future in futures:
        with pytest.raises(parl_lite.ActorLostError, match="5"):
            future.result()


def test_a_caller_that_is_killed_while_its_call_waits_costs_nobody(server):
    victim = Caller(server)
    pid = victim.pid()
    victim.begin_four(7.0)
    until(lambda: server.seen == ["here"], 10, "the call right before it was answered")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 10, "the caller is dead")
    futures = [server.futures.four(float(i)) for i in range(3)]
    assert [future.result(timeout=LONG / 2)["twice"] for future in futures] == [0, 2, 4]
    assert server.seen == ["here", 7.0, 0.0, 1.0, 2.0]


# Names and classes


def test_an_attribute_that_hides_a_batched_method_is_called_as_it_is(cluster):
    hiding = Server(True)
    assert hiding.act(-3) == 3
    ordinary = Server()
    assert ordinary.act(3) == 6
    ordinary.act = len
    assert ordinary.act("text") == 4


def test_a_class_that_travels_by_value_is_batched(cluster):
    @parl_lite.remote_class(wait=False)
    class Local:
        @parl_lite.batched(max_size=3, timeout=LONG)
        def act(self, obs):
            return obs + len(obs)

    local = Local()
    assert parl_lite.get([local.act(i) for i in range(3)]) == [3, 4, 5]


SCRIPT = """
import parl_lite as parl

@parl.remote_class
class Server:
    @parl.batched(max_size=3, timeout=30.0)
    def act(self, obs):
        return obs + len(obs)

if __name__ == "__main__":
    parl.connect(n_cpu=1, log_to_driver=False)
    server = Server()
    print([int(row) for row in parl.get([server.futures.act(i) for i in range(3)])])
"""


def test_a_class_of_a_script_is_batched(run_script):
    done = run_script(SCRIPT)
    assert done.stdout == "[3, 4, 5]\n", done.stderr
