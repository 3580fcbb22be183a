"""The loop turns what comes in into events and performs what the machine returns, here within one process."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import zmq
from builders import SETTINGS

from parl_lite import wire
from parl_lite.loop import Loop, run_in_thread
from parl_lite.machine import (
    MASTER,
    Babbled,
    Connected,
    Disconnected,
    Finish,
    HandshakeFailed,
    PeerLost,
    Received,
    Say,
    Send,
    Woke,
)
from parl_lite.messages import AskStatus, EndJob, Goodbye, Message, Welcome
from parl_lite.sockets import bind_tcp, control_dealer, control_router

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
DONE = Finish(0, "done")


class Tape:
    """A machine that keeps what happened, and answers each event by what it was told to."""

    def __init__(self, *answers: tuple[object, Sequence[object]]) -> None:
        self.answers = list(answers)
        self.events: list[object] = []
        self.times: list[float] = []
        self.wish: float | None = None
        self.watched: list[bytes] = []

    def handle(self, event: object, now: float) -> Sequence[object]:
        self.events.append(event)
        self.times.append(now)
        return next((actions for expected, actions in self.answers if expected == event), [])

    def deadline(self) -> float | None:
        return self.wish

    def peers(self) -> Sequence[bytes]:
        return self.watched

    def check(self) -> None:
        """There is nothing that could be wrong."""


class Clock:
    """Goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Sides:
    """The two ends of a link within this process, and loops on either."""

    def __init__(self) -> None:
        self.context: Context = zmq.Context()
        self.router = control_router(self.context, SETTINGS)
        self.router.bind("inproc://master")
        self.performed: list[object] = []
        self.loops: list[Loop] = []
        self.dealers: list[Socket] = []

    def dealer(self, name: bytes = b"peer") -> Socket:
        dealer = control_dealer(self.context, SETTINGS, name)
        dealer.connect("inproc://master")
        self.dealers.append(dealer)
        return dealer

    def loop(
        self, machine: Tape, on: Socket | None = None, perform: Callable[[Any], Any] | None = None, clock: Any = None
    ) -> Loop:
        """Make a loop on a socket, the router by default."""
        loop = Loop(on or self.router, machine, perform or self.performed.append, SETTINGS, clock or (lambda: 100.0))
        self.loops.append(loop)
        return loop

    def loop_towards(self, port: int, machine: Tape, perform: Callable[[Any], Any] | None = None) -> Loop:
        """Make a loop on a dealer that connects to a port, as a worker or a client does."""
        dealer = control_dealer(self.context, SETTINGS, b"peer")
        loop = self.loop(machine, on=dealer, perform=perform)
        dealer.connect(f"tcp://127.0.0.1:{port}")
        return loop

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        for sock in (self.router, *self.dealers):
            sock.close(0)
        self.context.term()  # hangs while a socket or a monitor is open


@pytest.fixture
def sides() -> Iterator[Sides]:
    sides = Sides()
    yield sides
    sides.close()


def say(dealer: Socket, *messages: Message) -> None:
    for message in messages:
        dealer.send_multipart(wire.encode(message))


def hear(dealer: Socket) -> Message:
    """Return the next message, probes left out."""
    frames = [b""]
    while frames == [b""]:
        frames = dealer.recv_multipart()
    return wire.decode(frames, SETTINGS.max_control_message)


# Messages


def test_a_message_comes_with_its_sender_and_the_time(sides: Sides) -> None:
    machine = Tape((Received(b"peer", AskStatus()), [DONE]))
    say(sides.dealer(), AskStatus())
    assert sides.loop(machine).run() == DONE
    assert machine.events == [Received(b"peer", AskStatus())]
    assert machine.times == [100.0]


def test_messages_of_one_peer_keep_their_order(sides: Sides) -> None:
    sent = [EndJob(str(number)) for number in range(50)]
    machine = Tape((Received(b"peer", sent[-1]), [DONE]))
    say(sides.dealer(), *sent)
    sides.loop(machine).run()
    assert machine.events == [Received(b"peer", message) for message in sent]


def test_an_answer_goes_to_the_peer_it_is_for(sides: Sides) -> None:
    alice, bob = sides.dealer(b"alice"), sides.dealer(b"bob")
    say(alice, AskStatus())
    say(bob, Goodbye())
    answers = [Send(b"alice", Welcome("alice's")), Send(b"bob", Welcome("bob's")), DONE]
    sides.loop(Tape((Received(b"bob", Goodbye()), answers))).run()
    assert (hear(alice), hear(bob)) == (Welcome("alice's"), Welcome("bob's"))


def test_probes_are_no_news(sides: Sides) -> None:
    machine = Tape((Received(b"peer", Goodbye()), [DONE]))
    dealer = sides.dealer()
    dealer.send(b"")
    say(dealer, Goodbye())
    sides.loop(machine).run()
    assert machine.events == [Received(b"peer", Goodbye())]


@pytest.mark.parametrize("frames", [[b"x"], [b"PLT1EndJob", b"x"], [b"", b""], [b"PLT1Goodbye"] * 3])
def test_nonsense_is_told_with_its_sender_and_what_follows_is_heard(sides: Sides, frames: list[bytes]) -> None:
    machine = Tape((Received(b"peer", Goodbye()), [DONE]))
    dealer = sides.dealer()
    dealer.send_multipart(frames)
    say(dealer, Goodbye())
    sides.loop(machine).run()
    nonsense, _ = machine.events
    assert isinstance(nonsense, Babbled)
    assert (nonsense.peer, nonsense.reason != "") == (b"peer", True)


def test_a_flood_of_messages_lets_the_rest_have_its_turn(sides: Sides) -> None:
    flood = [EndJob(str(number)) for number in range(1000)]
    machine = Tape((Received(b"peer", flood[0]), ["post"]), (Received(b"peer", flood[-1]), [DONE]))
    say(sides.dealer(), *flood)
    loop = sides.loop(machine, perform=lambda _: loop.post("posted"))
    loop.run()
    assert 0 < machine.events.index("posted") < 500


def test_a_worker_hears_its_master_under_one_name(sides: Sides) -> None:
    machine = Tape((Received(MASTER, Welcome("town")), [Send(MASTER, Goodbye()), DONE]))
    dealer = sides.dealer()
    say(dealer, AskStatus())
    sides.router.send_multipart([sides.router.recv_multipart()[0], *wire.encode(Welcome("town"))])
    sides.loop(machine, on=dealer).run()
    assert machine.events == [Received(MASTER, Welcome("town"))]
    assert wire.decode(sides.router.recv_multipart()[1:], SETTINGS.max_control_message) == Goodbye()


# Events from elsewhere


def test_posted_events_come_in_order_before_messages(sides: Sides) -> None:
    machine = Tape((Received(b"peer", Goodbye()), [DONE]))
    say(sides.dealer(), Goodbye())
    loop = sides.loop(machine)
    loop.post("one")
    loop.post("two")
    loop.run()
    assert machine.events == ["one", "two", Received(b"peer", Goodbye())]


def test_another_thread_can_post_while_the_loop_waits(sides: Sides) -> None:
    loop = sides.loop(Tape(("end", [DONE])))
    thread = run_in_thread(loop, "a loop")
    assert (thread.name, thread.daemon) == ("a loop", True)
    loop.post("end")
    thread.join(30)
    assert not thread.is_alive()


def test_what_an_event_posts_is_handled_without_a_wait(sides: Sides) -> None:
    machine = Tape(("one", ["post"]), ("two", [DONE]))
    loop = sides.loop(machine, perform=lambda _: loop.post("two"))
    loop.post("one")
    loop.run()
    assert machine.events == ["one", "two"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_a_watched_descriptor_calls_back_while_it_is_readable(sides: Sides, pipe: tuple[int, int]) -> None:
    read, write = pipe
    machine = Tape(("read b'ab'", ["more"]), ("read b'cd'", [DONE]))
    loop = sides.loop(machine, perform=lambda _: os.write(write, b"cd"))
    loop.watch(read, lambda: [f"read {os.read(read, 2)!r}"])
    os.write(write, b"ab")
    loop.run()
    assert machine.events == ["read b'ab'", "read b'cd'"]


def test_a_descriptor_may_be_unwatched_in_its_callback_and_by_anyone_twice(sides: Sides, pipe: tuple[int, int]) -> None:
    read, write = pipe
    machine = Tape(("unwatched", ["post"]), ("end", [DONE]))
    loop = sides.loop(machine, perform=lambda _: loop.post("end"))

    def unwatch() -> Iterable[str]:
        loop.unwatch(read)
        loop.unwatch(read)
        return ["unwatched"]

    loop.watch(read, unwatch)
    os.write(write, b"x")
    loop.run()
    assert machine.events == ["unwatched", "end"]


# Lost peers


def test_a_message_to_somebody_unknown_is_a_loss(sides: Sides) -> None:
    machine = Tape(("hello", [Send(b"nobody", Goodbye())]), (PeerLost(b"nobody"), [DONE]))
    loop = sides.loop(machine)
    loop.post("hello")
    loop.run()
    assert machine.events == ["hello", PeerLost(b"nobody")]


def test_a_probe_finds_out_that_a_peer_is_gone_though_no_monitor_tells_it(sides: Sides) -> None:
    stays, goes = sides.dealer(b"stays"), sides.dealer(b"goes")
    machine = Tape((Received(b"goes", Goodbye()), ["close"]), (PeerLost(b"goes"), [DONE]))
    machine.watched = [b"stays", b"goes"]
    say(stays, AskStatus())
    say(goes, Goodbye())
    often = dataclasses.replace(SETTINGS, liveness_timeout=0.02, probe_interval=0.02)
    loop = Loop(sides.router, machine, lambda _: goes.close(), often)
    sides.loops.append(loop)
    loop.run()
    assert PeerLost(b"stays") not in machine.events
    assert stays.recv_multipart() == [b""]


def test_a_peer_is_probed_once_an_interval_however_much_happens(sides: Sides) -> None:
    flood, dealer = [EndJob(str(number)) for number in range(1000)], sides.dealer()
    machine = Tape((Received(b"peer", flood[-1]), [Send(b"peer", Goodbye()), DONE]))
    machine.watched = [b"peer"]
    say(dealer, *flood)
    sides.loop(machine).run()
    heard = [dealer.recv_multipart(), dealer.recv_multipart()]
    assert heard == [[b""], wire.encode(Goodbye())]


def test_a_connection_that_breaks_is_noticed_by_the_probes_that_follow(sides: Sides) -> None:
    patient = dataclasses.replace(SETTINGS, liveness_timeout=1000.0, probe_interval=0.05)
    listener = control_router(sides.context, SETTINGS)
    port = bind_tcp(listener, "127.0.0.1", [], None)
    dealer = control_dealer(sides.context, SETTINGS, b"goes")
    sides.dealers.append(dealer)
    dealer.set(zmq.IMMEDIATE, 0)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    machine = Tape((Received(b"goes", Goodbye()), ["wait"]), ("go", ["close"]), (PeerLost(b"goes"), [DONE]))

    def perform(action: str) -> None:
        if action == "close":
            dealer.close(0)
        else:
            machine.watched = [b"goes"]
            timer.start()  # when it ends, the probes that every loop begins with are over

    loop = Loop(listener, machine, perform, patient)
    timer = threading.Timer(0.4, loop.post, ["go"])
    sides.loops.append(loop)
    say(dealer, Goodbye())
    assert loop.run() == DONE
    timer.join()
    assert machine.events == [Received(b"goes", Goodbye()), "go", PeerLost(b"goes")]


def test_while_no_connection_breaks_peers_are_left_in_peace(sides: Sides, pipe: tuple[int, int]) -> None:
    dealer, now = sides.dealer(), [100.0]
    machine = Tape(("end", [Send(b"peer", Goodbye()), DONE]))
    machine.watched = [b"peer"]
    n_turns = int(SETTINGS.liveness_timeout) - 1
    os.write(pipe[1], b"-" * n_turns)

    def a_second_later() -> Iterable[str]:
        now[0] += 1.0
        os.read(pipe[0], 1)
        return ["end"] if now[0] == 100.0 + n_turns else []

    loop = sides.loop(machine, clock=lambda: now[0])
    loop.watch(pipe[0], a_second_later)
    loop.run()
    heard: list[list[bytes]] = []
    while not heard or heard[-1] == [b""]:
        heard.append(dealer.recv_multipart())
    assert heard == [*[[b""]] * 4, wire.encode(Goodbye())]


# Time


def test_the_machine_is_woken_at_its_deadline(sides: Sides) -> None:
    machine = Tape((Woke(), [DONE]))
    machine.wish = 100.0
    assert sides.loop(machine).run() == DONE
    assert machine.events == [Woke()]


def test_the_machine_is_not_woken_before_its_deadline(sides: Sides) -> None:
    machine = Tape(("end", [DONE]))
    machine.wish = 100.001
    loop = sides.loop(machine)
    loop.post("one")
    loop.post("end")
    loop.run()
    assert machine.events == ["one", "end"]


def test_every_event_is_handled_at_its_own_time(sides: Sides) -> None:
    machine = Tape(("end", [DONE]))
    loop = sides.loop(machine, clock=Clock())
    loop.post("one")
    loop.post("end")
    loop.run()
    assert machine.times[1] > machine.times[0] > 100.0


# Actions


def test_what_the_machine_says_is_logged(sides: Sides, caplog: pytest.LogCaptureFixture) -> None:
    loop = sides.loop(Tape(("end", [Say("worker w joined"), DONE])))
    loop.post("end")
    with caplog.at_level(logging.INFO, "parl_lite"):
        loop.run()
    assert caplog.messages == ["worker w joined"]


def test_all_other_actions_are_somebody_elses(sides: Sides) -> None:
    loop = sides.loop(Tape(("end", ["start a child", DONE])))
    loop.post("end")
    loop.run()
    assert sides.performed == ["start a child"]


# The connection to the master


def test_a_connection_that_stands_and_one_that_breaks_are_told(sides: Sides) -> None:
    listener = control_router(sides.context, SETTINGS)
    port = bind_tcp(listener, "127.0.0.1", [], None)
    machine = Tape((Connected(), ["close"]), (Disconnected(), [DONE]))
    sides.loop_towards(port, machine, perform=lambda _: listener.close()).run()
    assert machine.events == [Connected(), Disconnected()]


def test_a_listener_that_hangs_up_at_once_is_no_master(sides: Sides) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        machine = Tape((HandshakeFailed(final=False), [DONE]))
        loop = sides.loop_towards(listener.getsockname()[1], machine)

        def hang_up() -> Iterable[object]:
            listener.accept()[0].close()
            return []

        loop.watch(listener.fileno(), hang_up)
        loop.run()
    assert Connected() not in machine.events


def test_a_message_to_a_master_that_is_not_there_is_dropped(sides: Sides) -> None:
    machine = Tape(("hello", [Send(MASTER, Goodbye())]), ("end", [DONE]))
    loop = sides.loop_towards(1, machine)
    loop.post("hello")
    loop.post("end")
    loop.run()
    assert machine.events == ["hello", "end"]


# The end


def test_a_closed_loop_lets_its_context_end() -> None:
    sides = Sides()
    loop = sides.loop_towards(1, Tape())
    sides.close()
    assert sides.context.closed
    loop.post("too late")


def test_a_loop_that_finished_does_not_run_again(sides: Sides) -> None:
    machine = Tape(("end", [DONE]))
    loop = sides.loop(machine)
    loop.post("end")
    assert loop.run() == loop.run() == DONE
    assert machine.events == ["end"]
