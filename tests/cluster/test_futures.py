"""Futures, waiting, and several threads on one handle."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq
from conftest import PATIENCE, helpers_rest, until
from patients import Ledger

import parl_lite
from parl_lite import frames
from parl_lite.calls import Channel
from parl_lite.line import Line
from parl_lite.payload import Encoder
from parl_lite.settings import Settings
from parl_lite.sockets import data_dealer


@pytest.fixture
def ledger(cluster):
    return Ledger()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A named pipe: a call that waits for it ends when something is written to it, with that."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def test_calls_run_in_order_and_results_are_read_in_any(ledger):
    futures = []
    for version in range(200):
        ledger.futures.set_weights(version)
        futures.append(ledger.futures.sample())
    assert [future.result() for future in reversed(futures)] == list(reversed(range(200)))


def test_eight_threads_share_a_handle(ledger):
    def work(thread: int) -> None:
        for i in range(100):
            assert ledger.add((thread, i)) == (thread, i)
            assert ledger.futures.add((thread, i)).result() == (thread, i)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, thread) for thread in range(8)]:
            future.result()
    assert ledger.total() == 1600
    entries = ledger.entries
    for thread in range(8):
        own = [i for t, i in entries if t == thread]
        assert own == [i for i in range(100) for _ in range(2)]


def test_a_second_thread_need_not_wait_for_the_call_of_the_first(cluster, gate):
    ledger, other = Ledger(), Ledger()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ledger.wait_for, str(gate))
        assert [other.add(i) for i in range(3)] == [0, 1, 2]
        future = ledger.futures.add("second")
        gate.write_text("first")  # waits until the call of the other thread has begun
        assert future.result() == "second"
        assert first.result() == "first"


def test_destroying_under_a_call_is_an_error_there_and_no_abort(cluster, gate):
    ledger = Ledger()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ledger.wait_for, str(gate))
        ledger.futures.total()  # its thread is in the socket by now, or comes to it after us
        ledger.destroy()
        with pytest.raises(parl_lite.ActorLostError):
            waiting.result()


def test_actors_are_created_from_several_threads_at_once(cluster):
    with ThreadPoolExecutor(4) as pool:
        actors = list(pool.map(lambda _: Ledger(), range(4)))
        assert len(set(pool.map(lambda actor: actor.pid(), actors))) == 4


def test_a_timeout_does_not_lose_the_result(ledger, gate):
    future = ledger.futures.wait_for(str(gate))
    with pytest.raises(TimeoutError, match="the call goes on"):
        future.result(timeout=0.05)
    with pytest.raises(TimeoutError):
        future.get(block=False)
    gate.write_text("here")
    assert future.result() == "here"
    assert future.get() == "here" and future.get_nowait() == "here"


def test_wait_and_as_completed_over_several_actors(cluster, gate):
    quick, slow = Ledger(), Ledger()
    late, soon = slow.futures.wait_for(str(gate)), quick.futures.add("soon")
    done, not_done = parl_lite.wait([late, soon], return_when="FIRST_COMPLETED")
    assert (done, not_done) == ({soon}, {late})
    found = parl_lite.as_completed([late, soon])
    assert next(found).result() == "soon"
    gate.write_text("late")
    assert [future.result() for future in found] == ["late"]
    assert parl_lite.wait([late, soon]) == ({late, soon}, set())
    assert parl_lite.get([late, soon]) == ["late", "soon"]


def test_waiting_ends_at_its_timeout(ledger, gate):
    future = ledger.futures.wait_for(str(gate))
    assert parl_lite.wait([future], timeout=0.05) == (set(), {future})
    with pytest.raises(TimeoutError, match="1 of 1"):
        list(parl_lite.as_completed([future], timeout=0.05))
    gate.write_text("here")
    assert future.result() == "here"


def test_wait_can_return_at_the_first_error(cluster, gate):
    good, bad = Ledger(), Ledger()
    long, failing = good.futures.wait_for(str(gate)), bad.futures.add()
    done, not_done = parl_lite.wait([long, failing], return_when="FIRST_EXCEPTION")
    assert (done, not_done) == ({failing}, {long})
    assert isinstance(failing.exception(), TypeError)
    with pytest.raises(ValueError, match="SOMETIME"):
        parl_lite.wait([long], return_when="SOMETIME")
    gate.write_text("here")
    assert long.result() == "here"


def test_a_call_that_has_not_begun_can_be_cancelled(ledger, gate):
    pid = ledger.pid()
    running, waiting, last = ledger.futures.wait_for(str(gate)), ledger.futures.add("never"), ledger.futures.add("last")
    with open(gate, "w") as pipe:  # the first has begun
        assert waiting.cancel() and waiting.cancelled()
        assert not running.cancel() and running.running()
        with pytest.raises(CancelledError):
            waiting.result()
        until(lambda: helpers_rest(os.getpid()) and helpers_rest(pid), 5, "the actor's process has the word")
        threading.Event().wait(0.01)  # it looks for such once in a millisecond
        pipe.write("over")
    assert (running.result(), last.result()) == ("over", "last")
    assert ledger.entries == ["last"]


def test_callbacks_come_whether_the_result_is_here_or_not(ledger, gate):
    results: list[object] = []
    arrived = threading.Semaphore(0)

    def note(future):
        results.append(future.result())
        arrived.release()

    ledger.futures.wait_for(str(gate)).add_done_callback(note)
    gate.write_text("later")
    settled = ledger.futures.add("at once")
    settled.result()
    settled.add_done_callback(note)
    assert arrived.acquire(timeout=PATIENCE) and arrived.acquire(timeout=PATIENCE)
    assert sorted(results) == ["at once", "later"]


def test_futures_can_be_awaited(ledger):
    async def work():
        return await asyncio.gather(*[ledger.futures.add(i) for i in range(5)])

    assert asyncio.run(work()) == list(range(5))


def test_a_value_is_fixed_when_the_call_is_made(ledger, gate):
    import numpy as np

    for size in (10, 1_000_000):
        array = np.zeros(size)
        ledger.futures.wait_for(str(gate))
        future = ledger.futures.add(array)
        array[:] = 1
        gate.write_text("now")
        assert future.result().sum() == 0


def test_a_handle_does_not_survive_fork(ledger):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ledger.total()
        except parl_lite.NotConnectedError:
            os.write(write, b"told")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"told"
    assert ledger.total() == 0


def test_many_calls_under_way_need_no_reader(ledger):
    futures = [ledger.futures.add(i) for i in range(2000)]
    assert [future.result() for future in futures] == list(range(2000))


@pytest.mark.parametrize("address", ["ipc:///tmp/nobody-listens-here", "tcp://127.0.0.1:1"])
def test_a_job_that_is_gone_before_we_connect_is_lost_and_no_hang(address):
    settings = dataclasses.replace(Settings(), loss_patience=0.2)
    context = zmq.Context()
    line = Line(data_dealer(context, settings), settings)
    channel = Channel(line, "Actor here 1", settings)
    line.connect(address, None)
    with pytest.raises(parl_lite.ActorLostError, match="Actor here 1"):
        channel.request(frames.GET, "x", None, "x").result(timeout=PATIENCE)
    channel.close()
    context.term()


def test_a_probe_of_the_job_is_no_answer():
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind("inproc://job")
    line = Line(data_dealer(context, Settings()), Settings())
    channel = Channel(line, "Actor here 1", Settings())
    line.connect("inproc://job", None)

    def answer() -> None:
        peer, frame = router.recv_multipart()
        router.send_multipart([peer, b""])
        number = frames.HEADER.unpack_from(frame)[3]
        router.send_multipart([peer, frames.build(frames.RESULT, number, b"", Encoder().encode_parts("here"))[0]])

    job = threading.Thread(target=answer)
    job.start()
    found = channel.call(b"where", ((), {}), "x")
    assert (found.result(timeout=PATIENCE) if isinstance(found, parl_lite.Future) else found) == "here"
    job.join()
    channel.close()
    router.close(0)
    context.term()
