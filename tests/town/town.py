"""A whole cluster in one process: the pure machines of a master, workers and clients, joined by links that can break.

Nothing here waits: the town has its own clock, and a seeded generator picks what happens next. Messages pass through the real
wire format. A job is a line in a worker's book, which may speak, die, or be killed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from parl_lite import client_state, wire
from parl_lite.client_state import ClientState
from parl_lite.cluster import worker_state
from parl_lite.cluster.master_state import MasterState
from parl_lite.cluster.worker_state import WorkerState
from parl_lite.machine import MASTER, Connected, Disconnected, Finish, Interrupted, PeerLost, Received, Send, Woke
from parl_lite.messages import Needs, Place, Versions, WantJob
from parl_lite.settings import Settings

VERSIONS = Versions(1, "0", "3", "2")
SETTINGS = Settings()


@dataclass
class Node:
    """A worker or a client, and its link to the master."""

    peer: bytes
    machine: WorkerState | ClientState
    up: bool = False
    to_master: deque = field(default_factory=deque)
    from_master: deque = field(default_factory=deque)
    asked: dict = field(default_factory=dict)  # worker: jobs whose process was asked for; True when asked to end
    wanted: set = field(default_factory=set)  # client: wishes the user still waits for
    granted: dict = field(default_factory=dict)  # client: job -> wish
    outcomes: dict = field(default_factory=dict)  # client: wish -> "granted" | "denied"
    lost: set = field(default_factory=set)
    next_wish: int = 1
    finished: bool = False


class Town:
    """Runs the machines, one random step after the other."""

    def __init__(self, seed: int, n_workers: int = 3, n_clients: int = 3, n_cpu: int = 3) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.seen: set[str] = set()
        self.n_masters = 0
        self.master_finished = False
        self.start_master()
        self.nodes: dict[bytes, Node] = {}
        self.gone: list[bytes] = []  # broken links that the master has not noticed
        self.n_nodes = 0
        for _ in range(n_workers):
            self.add_worker(n_cpu)
        for _ in range(n_clients):
            self.add_client()

    # --- the people ----------------------------------------------------------------------------------------

    def start_master(self) -> None:
        self.n_masters += 1
        self.master = MasterState("town", f"epoch{self.n_masters}", VERSIONS, "here", SETTINGS)

    def add_worker(self, n_cpu: int) -> Node:
        place = Place(f"w{self.n_nodes}", 1, "boot")
        return self._add(WorkerState(VERSIONS, place, n_cpu, ("0", "1"), 1, "/logs", SETTINGS))

    def add_client(self) -> Node:
        return self._add(ClientState(VERSIONS, Place(f"c{self.n_nodes}", 1, "boot"), True))

    def _add(self, machine) -> Node:
        self.n_nodes += 1
        peer = b"peer%d" % self.n_nodes
        node = self.nodes[peer] = Node(peer, machine)
        self.heal(node)
        return node

    def workers(self) -> list[Node]:
        return [node for node in self.nodes.values() if isinstance(node.machine, WorkerState)]

    def clients(self) -> list[Node]:
        return [node for node in self.nodes.values() if isinstance(node.machine, ClientState)]

    # --- what may happen -----------------------------------------------------------------------------------

    def step(self, faults: bool = True) -> None:
        """Let one thing happen, then check every invariant."""
        choices = [self.deliver] * 30 + [self.pass_time] * 3 + [self.child_event] * 8
        choices += [self.wish] * 3 + [self.release] * 2 + [self.give_up]
        if faults:
            choices += [self.break_a_link, self.heal_a_link, self.heal_a_link, self.notice_a_loss, self.job_dies]
            choices += self.random.choices([self.restart_master, self.kill_a_node, self.chat, self.leave, self.false_alarm], k=1)
        self.random.choice(choices)()
        self.check()

    def settle(self) -> None:
        """No more faults and wishes: everything under way comes to its end."""
        for node in list(self.nodes.values()):
            if node.finished and not node.to_master:
                self.remove(node)
            self.heal(node)
        for _ in range(60):
            while self.gone:
                self.notice_a_loss()
            while any(node.to_master or node.from_master for node in self.nodes.values()):
                self.deliver()
            for worker in self.workers():
                for job in list(worker.asked):
                    self.child_does(worker, job, speaks=True)
            self.pass_time(1.0)
            self.check()

    def deliver(self) -> None:
        queues = [(node, "in") for node in self.nodes.values() if node.to_master]
        queues += [(node, "out") for node in self.nodes.values() if node.from_master]
        if not queues:
            return
        node, way = self.random.choice(queues)
        if way == "in":
            self.to_master(Received(node.peer, self._over_the_wire(node.to_master.popleft())))
            if node.finished and not node.to_master and node.peer in self.nodes:
                self.remove(node)
        else:
            self.to_node(node, Received(MASTER, self._over_the_wire(node.from_master.popleft())))

    def pass_time(self, seconds: float | None = None) -> None:
        self.now += self.random.choice([0.1, 0.5, 2.0]) if seconds is None else seconds
        if (self.master.deadline() or self.now + 1) <= self.now:
            self.to_master(Woke())
        for node in list(self.nodes.values()):
            if (node.machine.deadline() or self.now + 1) <= self.now:
                self.to_node(node, Woke())

    def wish(self) -> None:
        node = self._one_of(self.clients())
        if node is None or len(node.wanted) > 4:
            return
        needs = Needs(self.random.choice([1, 1, 1, 2, 9]), self.random.choice([0, 0, 0, 1]), None)
        number, node.next_wish = node.next_wish, node.next_wish + 1
        node.wanted.add(number)
        self.to_node(node, client_state.Wished(WantJob(number, "Actor", needs)))

    def give_up(self) -> None:
        node = self._one_of(self.clients())
        if node is not None and node.wanted:
            number = self.random.choice(sorted(node.wanted))
            node.wanted.discard(number)
            self.to_node(node, client_state.GaveUp(number))

    def release(self) -> None:
        node = self._one_of(self.clients())
        if node is not None and node.granted:
            job = self.random.choice(sorted(node.granted))
            del node.granted[job]
            self.to_node(node, client_state.Released(job))

    def chat(self) -> None:
        node = self._one_of(self.clients())
        if node is not None:
            self.to_node(node, client_state.AskedStatus())
        worker = self._one_of(self.workers())
        if worker is not None and worker.machine.children:
            job = self.random.choice(sorted(worker.machine.children))
            self.to_node(worker, worker_state.JobPrintedHere(job, "hello\n"))

    def leave(self) -> None:
        node = self._one_of(list(self.nodes.values()))
        if node is None or len(self.nodes) < 4:
            return
        if isinstance(node.machine, WorkerState):
            self.to_node(node, Interrupted("drained"))
        else:
            node.wanted.clear()
            node.granted.clear()
            self.to_node(node, client_state.Left())

    def child_event(self) -> None:
        node = self._one_of([worker for worker in self.workers() if worker.asked])
        if node is not None:
            self.child_does(node, self.random.choice(sorted(node.asked)), speaks=self.random.random() < 0.8)

    def child_does(self, node: Node, job: str, speaks: bool) -> None:
        """A process that was asked to end ends; one that was asked for speaks, or fails."""
        if node.asked[job]:
            self._child_dies(node, job, 0, None)
        elif not node.machine.children[job].addresses:
            if speaks:
                self.to_node(node, worker_state.JobSpoke(job, 7, (f"tcp://{job}",)))
            else:
                self._child_dies(node, job, 1, None)

    def job_dies(self) -> None:
        node = self._one_of([worker for worker in self.workers() if worker.asked])
        if node is not None:
            self._child_dies(node, self.random.choice(sorted(node.asked)), None, 9)

    def _child_dies(self, node: Node, job: str, exit_code: int | None, number: int | None) -> None:
        del node.asked[job]
        self.to_node(node, worker_state.JobDied(job, 7, exit_code, number, "ended", "last words"))

    # --- faults --------------------------------------------------------------------------------------------

    def break_a_link(self) -> None:
        node = self._one_of([node for node in self.nodes.values() if node.up])
        if node is not None:
            self.break_link(node)

    def break_link(self, node: Node) -> None:
        node.up = False
        node.to_master.clear()
        node.from_master.clear()
        self.gone.append(node.peer)
        if not node.finished:
            self.to_node(node, Disconnected())

    def heal_a_link(self) -> None:
        node = self._one_of([node for node in self.nodes.values() if not node.up])
        if node is not None:
            self.heal(node)

    def heal(self, node: Node) -> None:
        if not node.up and not node.finished:
            node.up = True
            self.gone = [peer for peer in self.gone if peer != node.peer]
            self.to_node(node, Connected())

    def notice_a_loss(self) -> None:
        if self.gone:
            self.to_master(PeerLost(self.gone.pop(self.random.randrange(len(self.gone)))))

    def false_alarm(self) -> None:
        node = self._one_of(list(self.nodes.values()))
        if node is not None:
            self.to_master(PeerLost(node.peer))

    def restart_master(self) -> None:
        if self.random.random() > 0.2:
            return
        for node in list(self.nodes.values()):
            if node.up:
                self.break_link(node)
        self.gone.clear()
        self.start_master()

    def kill_a_node(self) -> None:
        if self.random.random() < 0.2 and len(self.nodes) > 4:
            self.remove(self._one_of(list(self.nodes.values())))

    def remove(self, node: Node) -> None:
        del self.nodes[node.peer]
        self.gone.append(node.peer)

    # --- machines and actions ------------------------------------------------------------------------------

    def to_master(self, event) -> None:
        for action in self.master.handle(event, self.now):
            match action:
                case Send(peer, message):
                    node = self.nodes.get(peer)
                    if node is not None and node.up:
                        node.from_master.append(message)
                    elif peer not in self.gone:
                        self.gone.append(peer)
                case Finish():
                    self.master_finished = True

    def to_node(self, node: Node, event) -> None:
        if node.finished:
            return  # its process is gone; what it sent is still on the way
        for action in node.machine.handle(event, self.now):
            match action:
                case Send(_, message):
                    if node.up:
                        node.to_master.append(message)
                case Finish():
                    node.finished = True
                case worker_state.StartChild(order, _):
                    node.asked[order.job] = False
                case worker_state.EndChild(job, _):
                    node.asked[job] = True
                case client_state.Granted(grant):
                    self._granted(node, grant)
                case client_state.Denied(wish, _):
                    node.wanted.discard(wish)
                    self._end_wish(node, wish, "denied")
                case client_state.Lost(loss):
                    node.granted.pop(loss.job, None)
                    node.lost.add(loss.job)
        if node.finished and not node.to_master:
            self.remove(node)

    def _granted(self, node: Node, grant) -> None:
        self._end_wish(node, grant.wish, "granted")
        if grant.wish in node.wanted:
            node.wanted.discard(grant.wish)
            node.granted[grant.job] = grant.wish

    def _end_wish(self, node: Node, wish: int, outcome: str) -> None:
        assert wish not in node.outcomes, f"wish {wish} ended twice"
        node.outcomes[wish] = outcome

    def _over_the_wire(self, message):
        self.seen.add(type(message).__name__)
        decoded = wire.decode(wire.encode(message), SETTINGS.max_control_message)
        assert decoded == message
        return decoded

    def _one_of(self, things):
        return self.random.choice(things) if things else None

    # --- invariants ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every step."""
        self.master.check()
        for node in self.nodes.values():
            node.machine.check()
        holders = [job for client in self.clients() for job in client.granted]
        assert len(holders) == len(set(holders)), "a job is owned twice"
        for client in self.clients():
            assert client.granted.keys() <= client.machine.jobs
            assert client.wanted == set(client.machine.wishes), "a wish was lost"

    def check_settled(self) -> None:
        """What must hold when nothing is under way any more."""
        held = {job for client in self.clients() for job in client.granted}
        here = {job for worker in self.workers() for job in worker.machine.children}
        assert held == here == set(self.master.jobs), (held, here, set(self.master.jobs))
        assert {worker.peer for worker in self.workers()} == set(self.master.workers)
        assert {client.peer for client in self.clients()} == set(self.master.clients)
        waiting = {(client.peer, wish) for client in self.clients() for wish in client.wanted}
        assert waiting == set(self.master.wishes), "a wish was lost"
        if self.master.wishes and self.master.workers:
            first = next(iter(self.master.wishes.values()))
            assert not any(worker.has_room_for(first.needs) for worker in self.master.workers.values())
