"""Simulated workers and clients: real sockets towards a real master, thousands in one process, and no jobs behind them."""

from __future__ import annotations

import os
import secrets
import select
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import zmq

from parl_lite import folders, hostos, launch, wire
from parl_lite.messages import (
    AskStatus,
    EndJob,
    JobEnded,
    JobGranted,
    JobLost,
    JobReady,
    JoinClient,
    JoinWorker,
    Message,
    Needs,
    Place,
    ReleaseJob,
    StartJob,
    Status,
    WantJob,
    Welcome,
    WishWaits,
)
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings
from parl_lite.sockets import connect, control_dealer
from parl_lite.versions import own_versions

_NOTHING_MORE = 0.2


class Peer:
    """One simulated worker or client."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd = crowd
        self.number = number
        self.welcome = False
        self.socket = control_dealer(crowd.context, crowd.settings, secrets.token_bytes(8).replace(b"\0", b"\1"))
        self.socket.set(zmq.IMMEDIATE, 0)
        connect(self.socket, crowd.address, crowd.key)
        self.place = Place(f"host{number}", 1, "boot")

    def say(self, message: Message) -> None:
        """Send; the socket is looked at afterwards, since sending may hide what came."""
        self.crowd.n_messages += 1
        self.socket.send_multipart(wire.encode(message))
        self.crowd.to_look_at.add(self)

    def look(self) -> None:
        """Answer all that has come."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            if len(frames) == 2:
                self.crowd.n_messages += 1
                self.hear(wire.decode(frames, self.crowd.settings.max_control_message))

    def hear(self, message: Message) -> None:
        """Answer one message."""
        raise NotImplementedError


class Worker(Peer):
    """Starts and ends jobs at once, by word only."""

    def __init__(self, crowd: Crowd, number: int, n_cpu: int) -> None:
        super().__init__(crowd, number)
        self.join = JoinWorker(own_versions(), self.place, n_cpu, (), 8 << 30, ())

    def hear(self, message: Message) -> None:
        match message:
            case Welcome():
                self.welcome = True
            case StartJob(job=job):
                addresses = (f"ipc:///tmp/parl_lite-1000/w-{self.number}/j{job}", "tcp://10.0.0.1:45678")
                self.say(JobReady(job, 4711, addresses, f"/tmp/parl_lite-1000/w/logs/Actor-{job}.log"))
            case EndJob(job):
                self.say(JobEnded(job, 4711, 0, None, "ended with exit code 0", False, "", "/tmp/log"))
            case _:
                raise AssertionError(message)


class Client(Peer):
    """Wants jobs and keeps them until it is told otherwise."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__(crowd, number)
        self.join = JoinClient(own_versions(), self.place, (), (), False)
        self.granted: list[tuple[int, str]] = []
        """Wish and job, in the order in which the grants came."""
        self.lost: list[str] = []
        self.status = ""
        self.n_waits = 0

    def want(self, wishes: Sequence[int]) -> None:
        """Wish for jobs of one slot."""
        for wish in wishes:
            self.say(WantJob(wish, "Actor", Needs(1, 0, None)))

    def release(self, jobs: Sequence[str]) -> None:
        """Need jobs no more."""
        for job in jobs:
            self.say(ReleaseJob(job))

    def hear(self, message: Message) -> None:
        match message:
            case Welcome():
                self.welcome = True
            case JobGranted(wish=wish, job=job):
                self.granted.append((wish, job))
            case JobLost(job=job):
                self.lost.append(job)
            case Status(report):
                self.status = report
            case WishWaits():
                self.n_waits += 1
            case _:
                raise AssertionError(message)

    def ask_status(self) -> None:
        self.status = ""
        self.say(AskStatus())


class Crowd:
    """Any number of peers, served by one thread: whoever has something to read is called.

    Attributes:
        n_messages: what was said and heard so far, without the sign that ends it.
    """

    def __init__(self, address: str, settings: Settings, key: ClusterKey | None = None) -> None:
        hostos.raise_descriptor_limit()
        self.address = address
        self.settings = settings
        self.key = key
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 65535)
        self.n_messages = 0
        self.workers: list[Worker] = []
        self.clients: list[Client] = []
        self.to_look_at: set[Peer] = set()
        self._by_fd: dict[int, Peer] = {}
        self._epoll = select.epoll()

    def join(self, n_workers: int, n_cpu: int, n_clients: int) -> None:
        """Connect all, and return when the master has welcomed each."""
        self.workers = [self._add(Worker(self, number, n_cpu)) for number in range(n_workers)]
        self.clients = [self._add(Client(self, number)) for number in range(n_clients)]
        everybody = [*self.workers, *self.clients]
        self.run(lambda: all(peer.welcome for peer in everybody))

    def run(self, done: Callable[[], bool], timeout: float = 60.0) -> None:
        """Serve all peers until something is so."""
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done after {timeout} s")
            self.turn(_NOTHING_MORE)

    def turn(self, timeout: float) -> None:
        """Serve those that have something to read."""
        while self.to_look_at:
            self.to_look_at.pop().look()
        for fd, _ in self._epoll.poll(timeout):
            self._by_fd[fd].look()

    def disconnect(self, peers: Sequence[Peer]) -> None:
        """Let peers vanish without a word."""
        for peer in peers:
            fd = peer.socket.get(zmq.FD)
            self._epoll.unregister(fd)
            del self._by_fd[fd]
            self.to_look_at.discard(peer)
            peer.socket.close(0)

    def close(self) -> None:
        self._epoll.close()
        self.context.destroy(0)

    def _add(self, peer):
        self._by_fd[peer.socket.get(zmq.FD)] = peer
        self._epoll.register(peer.socket.get(zmq.FD), select.EPOLLIN)
        peer.say(peer.join)
        return peer


@contextmanager
def master(settings: Settings, key: ClusterKey | None = None):
    """Yield the address and the process id of a master over tcp that ends with the block."""
    folder, lock = folders.make_folder("m")
    arguments = ["--address", "127.0.0.1:0", "--folder", str(folder)]
    if key is not None:
        key.write(Path(folder, "crowd.key"))
        arguments += ["--key-file", str(Path(folder, "crowd.key"))]
    node = launch.launch("parl_lite.cluster.master", arguments, folder, Path(folder, "master.log"))
    try:
        said = node.await_ready(time.monotonic() + 30)
        yield f"tcp://{said['address']}", node.process.pid
    finally:
        node.end(5.0)
        os.close(lock)
        folders.remove_if_empty_of_life(folder)
