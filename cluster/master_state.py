"""The master as a pure machine: who is here, which slots are free, who wants one. Everything that changes the cluster is here.

Knows no socket, clock, thread or random; time and names come in. No event costs a look at all workers, jobs or wishes: what is
free is kept by slots.py, the order of wishes by wish_queue.py, and what runs out when by timetable.py.

A worker or client is *present*, or *absent* (its connection broke; it has until `rejoin_grace` to join again), or forgotten.
A wish waits in one queue, strictly in order, until a present worker has room for it. A job then is

    starting ──JobReady──▶ running ──ReleaseJob, its client forgotten──▶ ending
        │                     │                                            │
        └──────────── JobEnded, or its worker forgotten ───────────────────┴──▶ gone: its slots are free

Slots are taken from StartJob to JobEnded, whatever happens between. A master that starts anew learns the jobs from the workers
that join again (RunningJob) and whose they are from the clients that do; a job nobody claims in time is ended.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set

from parl_lite.machine import Babbled, Finish, Interrupted, PeerLost, Received, Say, Send, Woke, assert_never
from parl_lite.messages import (
    AskStatus,
    DrainWorker,
    EndJob,
    ForgetWish,
    Goodbye,
    JobEnded,
    JobGranted,
    JobLost,
    JobPrinted,
    JobReady,
    JobWrote,
    JoinAgain,
    JoinClient,
    JoinWorker,
    LeaveClient,
    LeaveWorker,
    Message,
    Needs,
    Place,
    Refused,
    ReleaseJob,
    RunningJob,
    StartJob,
    Status,
    StopCluster,
    StopNode,
    Versions,
    WantJob,
    Welcome,
    WishRefused,
    WishWaits,
)
from parl_lite.settings import Settings

from .records import Client, Job, Wish, Worker
from .report import report, room_of, why_never, why_waiting
from .slots import Slots
from .timetable import Timetable
from .wish_queue import Key, WishQueue

Event = Received | Babbled | PeerLost | Interrupted | Woke
Action = Send | Say | Finish
Term = tuple[str, bytes, str]
"""What runs out: (_ABSENCE, peer, ""), (_UNCLAIMED, b"", job), (_CLAIM, client, job)."""

_ABSENCE, _UNCLAIMED, _CLAIM = "absence", "unclaimed", "claim"
ByWorker = JobReady | JobEnded | JobWrote | DrainWorker | LeaveWorker
ByClient = WantJob | ForgetWish | ReleaseJob | LeaveClient


class MasterState:
    """The state of the whole cluster. Its fields belong together: change them through `handle` only, ever."""

    def __init__(self, cluster: str, epoch: str, versions: Versions, address: str, settings: Settings) -> None:
        self.cluster = cluster
        self.address = address
        self.versions = versions
        self.clients: dict[bytes, Client] = {}
        self._slots = Slots()
        self._queue = WishQueue()
        self._terms: Timetable[Term] = Timetable()
        self.deaths: deque[dict[str, object]] = deque(maxlen=20)
        self._epoch = epoch
        self._n_started = 0
        self._settings = settings
        self._stopping_until: float | None = None
        self._out: list[Action] = []

    @property
    def workers(self) -> Mapping[bytes, Worker]:
        """The workers that are present or absent, by peer."""
        return self._slots.workers

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs that have slots, by name."""
        return self._slots.jobs

    @property
    def wishes(self) -> Mapping[Key, Wish]:
        """The wishes that wait, in order."""
        return self._queue.wishes

    # --- the machine ---------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> Sequence[Action]:
        """Take in what happened and return what to do."""
        match event:
            case Received(peer, message):
                self._received(peer, message, now)
            case Babbled(peer, reason):
                self._babbled(peer, reason)
            case PeerLost(peer):
                self._lost(peer, now)
            case Interrupted(reason):
                self._out.append(Finish(0, reason))  # workers and clients may join the master that follows
            case Woke():
                pass
            case _:
                assert_never(event)
        self._expire(now)
        self._grant()
        self._notify(now)
        if self._stopping_until is not None and (not self.workers or now >= self._stopping_until):
            self._out.append(Finish(0, "stopped"))
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """Return when something expires or must be told."""
        times = (self._queue.next_look(), self._terms.first(), self._stopping_until)
        return min((time for time in times if time is not None), default=None)

    def peers(self) -> Sequence[bytes]:
        """Return the peers whose connections are watched: all that are not known to be broken."""
        return [peer.peer for peer in self._everybody() if peer.absent_until is None]

    def check(self) -> None:
        """Assert that slots add up, that no job is owned twice and that no wish is also a job."""
        self._slots.check()
        self._queue.check()
        for client in self.clients.values():
            assert all(self.jobs[job].client == client.peer for job in client.jobs)
            wished = {job.wish: job for job in client.jobs.values() if job.wish is not None}
            assert client.job_of_wish == wished
        owned = {(job.client, job.wish) for job in self.jobs.values() if job.wish is not None and job.state != "ending"}
        assert not owned & set(self.wishes)
        assert all(wish.client in self.clients for wish in self.wishes.values())
        assert all(job.client in self.clients or job.state == "ending" or job.claimed_until for job in self.jobs.values())
        terms = {(_ABSENCE, peer.peer, "") for peer in self._everybody() if peer.absent_until is not None}
        terms |= {(_UNCLAIMED, b"", job.job) for job in self.jobs.values() if job.claimed_until is not None}
        terms |= {(_CLAIM, client.peer, name) for client in self.clients.values() for name in client.claims}
        assert terms == self._terms.keys()

    def _everybody(self) -> list[Worker | Client]:
        return [*self.workers.values(), *self.clients.values()]

    def _send(self, peer: bytes, message: Message) -> None:
        self._out.append(Send(peer, message))

    # --- what peers say ------------------------------------------------------------------------------------

    def _received(self, peer: bytes, message: Message, now: float) -> None:
        match message:
            case JoinWorker() if peer in self.clients:
                self._babbled(peer, "it is a client, and wants to join as a worker")
            case JoinClient() if peer in self.workers:
                self._babbled(peer, "it is a worker, and wants to join as a client")
            case JoinWorker():
                self._join_worker(peer, message, now)
            case JoinClient():
                self._join_client(peer, message, now)
            case AskStatus():
                self._send(peer, Status(json.dumps(self.report(now))))
            case StopCluster():
                self._stop(peer, now)
            case JobReady() | JobEnded() | JobWrote() | DrainWorker() | LeaveWorker():
                if peer in self.workers:
                    self._worker_says(self.workers[peer], message, now)
                else:
                    self._send(peer, JoinAgain())
            case WantJob() | ForgetWish() | ReleaseJob() | LeaveClient():
                if peer in self.clients:
                    self._client_says(self.clients[peer], message, now)
                else:
                    self._send(peer, Goodbye() if isinstance(message, LeaveClient) else JoinAgain())
            case (
                Welcome()
                | Refused()
                | JoinAgain()
                | StartJob()
                | EndJob()
                | StopNode()
                | JobGranted()
                | WishWaits()
                | WishRefused()
                | JobLost()
                | JobPrinted()
                | Status()
                | Goodbye()
            ):
                self._babbled(peer, f"{type(message).__name__} is the master's to send")
            case _:
                assert_never(message)

    def _worker_says(self, worker: Worker, message: ByWorker, now: float) -> None:
        self._is_present(worker)  # it speaks, so its connection stands
        match message:
            case JobReady():
                self._job_ready(worker, message)
            case JobEnded():
                self._job_ended(worker, message)
            case JobWrote():
                self._job_wrote(worker, message)
            case DrainWorker():
                worker.draining = True
                self._slots.changed(worker)
            case LeaveWorker(reason):
                self._out.append(Say(f"worker {worker.place.host} leaves: {reason}"))
                self._forget_worker(worker, f"ended with its worker ({reason})")
            case _:
                assert_never(message)

    def _client_says(self, client: Client, message: ByClient, now: float) -> None:
        self._is_present(client)
        match message:
            case WantJob():
                self._want(client, message, now)
            case ForgetWish(wish):
                self._forget_wish(client, wish)
            case ReleaseJob(job):
                self._release(client, job)
            case LeaveClient():
                self._leave(client)
            case _:
                assert_never(message)

    def _babbled(self, peer: bytes, reason: str) -> None:
        self._out.append(Say(f"peer {peer.hex()} is dropped: {reason}"))
        self._send(peer, Refused("protocol", reason))
        worker, client = self.workers.get(peer), self.clients.get(peer)
        if worker is not None:
            self._forget_worker(worker, "is out of reach: its worker sent nonsense")
        if client is not None:
            self._forget_client(client)

    def _lost(self, peer: bytes, now: float) -> None:
        found = self.workers.get(peer) or self.clients.get(peer)
        if found is not None and found.absent_until is None:
            found.absent_until = now + self._settings.rejoin_grace
            self._terms.set((_ABSENCE, peer, ""), found.absent_until)
            for client in [client for client in self.clients.values() if client.leaving]:
                self._say_goodbye_when_done(client)

    def _is_present(self, found: Worker | Client) -> None:
        if found.absent_until is not None:
            found.absent_until = None
            self._terms.set((_ABSENCE, found.peer, ""), None)
            if isinstance(found, Worker):
                self._slots.changed(found)

    def _stop(self, peer: bytes, now: float) -> None:
        self._out.append(Say("the cluster is stopped"))
        for told in dict.fromkeys([*self.workers, *self.clients, peer]):  # who asked is told, whoever it is
            self._send(told, StopNode("the cluster was stopped"))
        self._queue.clear()
        self._stopping_until = now + self._settings.job_grace + self._settings.rejoin_grace

    # --- joining and leaving -------------------------------------------------------------------------------

    def _refuses(self, peer: bytes, theirs: Versions, place: Place) -> bool:
        conflict = self.versions.conflict_with(theirs)
        if conflict:
            reason = f"the master and {place.host} do not fit together: {conflict} (here is the master)"
            self._out.append(Say(f"refused {place.host} pid {place.pid}: {conflict}"))
            self._send(peer, Refused("version", reason))
        elif self._stopping_until is not None:
            self._send(peer, StopNode("the cluster is being stopped"))
            return True
        return bool(conflict)

    def _join_worker(self, peer: bytes, message: JoinWorker, now: float) -> None:
        if self._refuses(peer, message.versions, message.place):
            return
        known = self.workers.get(peer)
        if known is None:
            known = Worker(
                peer,
                message.versions,
                message.place,
                message.n_cpu,
                message.n_cpu,
                message.gpus,
                list(message.gpus),
                message.memory,
            )
            self._slots.add(known)
            self._out.append(Say(f"worker {message.place.host} joined with {message.n_cpu} CPUs"))
            self._refuse_hopeless(self._queue.sizes())
        self._is_present(known)
        told = {running.job for running in message.jobs}
        for job in [job for name, job in known.jobs.items() if name not in told]:
            self._tell_or_retry(job, "ended while its worker was away")
            self._end(job, repeat=True)  # our order to start it may be on its way: its slots are free when the worker confirms
        for running in message.jobs:
            self._adopt(known, running, now)
        self._send(peer, Welcome(self.cluster))

    def _adopt(self, worker: Worker, running: RunningJob, now: float) -> None:
        """Take over a job that a worker says it runs, from an earlier life of this master."""
        known = self.jobs.get(running.job)
        if known is not None and known.worker is worker:
            if known.state == "ending":
                self._send(worker.peer, EndJob(running.job))
            elif running.addresses:
                self._job_ready(worker, JobReady(running.job, running.pid, running.addresses, running.log_path))
            return
        fits = worker.free_cpu >= running.needs.n_cpu and set(running.gpus) <= set(worker.free_gpus)
        if known is not None or not fits:
            self._send(worker.peer, EndJob(running.job))  # nobody can own it; its JobEnded finds no job
            return
        owner = bytes.fromhex(running.client)
        job = Job(running.job, running.name, owner, None, running.needs, running.gpus, worker, state="running")
        job.pid, job.addresses, job.log_path = running.pid, running.addresses, running.log_path
        self._slots.take(job)
        client = self.clients.get(owner)
        if not running.addresses:
            self._end(job)  # it was never granted, so nobody knows it
        elif client is not None and job.job in client.claims:
            self._drop_claim(client, job.job)
            client.hold(job)
        else:
            self._await_claim(job, now + self._settings.liveness_timeout)

    def _join_client(self, peer: bytes, message: JoinClient, now: float) -> None:
        if self._refuses(peer, message.versions, message.place):
            return
        client = self.clients.get(peer)
        if client is None:
            client = self.clients[peer] = Client(peer, message.place, message.show_logs)
            self._out.append(Say(f"client {message.place.host} pid {message.place.pid} joined"))
        self._is_present(client)
        for name in message.jobs:
            job = self.jobs.get(name)
            if job is not None and job.state == "ending":
                reason = "was ended: its client was away for too long"
                self._tell_loss(job, JobEnded(name, job.pid, None, None, reason, False, "", job.log_path))
            elif job is not None and job.client == peer:
                self._await_claim(job, None)
                client.hold(job)
            elif name not in client.claims:
                client.claims.add(name)
                self._terms.set((_CLAIM, peer, name), now + self._settings.liveness_timeout)
        self._drop_what_was_given_up(client, set(message.jobs), set(message.wishes))
        self._send(peer, Welcome(self.cluster))

    def _drop_what_was_given_up(self, client: Client, jobs: Set[str], wishes: Set[int]) -> None:
        """A client that joins again names what it has: it released or gave up the rest while the connection was broken."""
        for number in self._queue.of_client(client.peer):
            if number not in wishes:
                self._queue.remove(client.peer, number)
        for job in list(client.jobs.values()):
            if job.job not in jobs and job.wish not in wishes:
                self._end(job)

    def _await_claim(self, job: Job, until: float | None) -> None:
        """End a job at this time unless its client claims it; None: no more."""
        job.claimed_until = until
        self._terms.set((_UNCLAIMED, b"", job.job), until)

    def _drop_claim(self, client: Client, name: str) -> None:
        client.claims.discard(name)
        self._terms.set((_CLAIM, client.peer, name), None)

    def _leave(self, client: Client) -> None:
        client.leaving = True
        self._forget_wishes(client)
        for job in list(client.jobs.values()):
            self._end(job)
        self._say_goodbye_when_done(client)

    def _say_goodbye_when_done(self, client: Client) -> None:
        if not client.leaving:
            return
        if not any(job.worker.absent_until is None for job in self._slots.jobs_of(client.peer).values()):
            self._send(client.peer, Goodbye())
            self._remove_client(client)

    def _forget_client(self, client: Client) -> None:
        self._out.append(Say(f"client {client.place.host} pid {client.place.pid} is gone"))
        self._remove_client(client)
        self._forget_wishes(client)
        for job in list(self._slots.jobs_of(client.peer).values()):
            self._end(job)

    def _remove_client(self, client: Client) -> None:
        del self.clients[client.peer]
        self._is_present(client)  # its absence ends with it
        for name in list(client.claims):
            self._drop_claim(client, name)

    def _forget_wishes(self, client: Client) -> None:
        for number in self._queue.of_client(client.peer):
            self._queue.remove(client.peer, number)

    def _forget_worker(self, worker: Worker, reason: str) -> None:
        self._out.append(Say(f"worker {worker.place.host} is gone"))
        self._slots.remove(worker)
        self._terms.set((_ABSENCE, worker.peer, ""), None)
        for job in reversed(list(worker.jobs.values())):
            if job.state == "running":
                self._remember_death(job, reason)
            self._tell_or_retry(job, reason)
            self._remove(job)
        self._refuse_hopeless(self._queue.sizes())

    # --- wishes --------------------------------------------------------------------------------------------

    def _want(self, client: Client, message: WantJob, now: float) -> None:
        job = client.job_of_wish.get(message.wish)
        if job is not None:
            if job.state == "running":
                self._grant_job(job)
            return
        waits = (client.peer, message.wish) in self.wishes
        if not waits and not client.leaving and self._stopping_until is None:
            first_notice = now + min(1.0, self._settings.notice_interval)
            self._queue.append(Wish(client.peer, message.wish, message.name, message.needs, now, first_notice))
            self._refuse_hopeless([message.needs])

    def _forget_wish(self, client: Client, wish: int) -> None:
        if self._queue.remove(client.peer, wish) is None and wish in client.job_of_wish:
            self._end(client.job_of_wish[wish])

    def _refuse_hopeless(self, sizes: Iterable[Needs]) -> None:
        """Refuse the wishes of these sizes that no worker that is here can ever run, wherever they stand in the queue."""
        found: list[tuple[Wish, str]] = []
        for needs in sizes:
            never = why_never(needs, self._slots.sizes)
            if never:
                found += ((wish, never) for wish in self._queue.of_size(needs))
        for wish, never in sorted(found, key=lambda refused: refused[0].place):
            self._queue.remove(wish.client, wish.wish)
            self._send(wish.client, WishRefused(wish.wish, never))

    def _grant(self) -> None:
        """Start jobs for wishes in order, until one has to wait."""
        while (wish := self._queue.first()) is not None:
            worker = self._slots.roomiest(wish.needs)
            if worker is None:
                return
            self._queue.remove(wish.client, wish.wish)
            self._start(wish, worker)

    def _notify(self, now: float) -> None:
        notices = self._queue.notices(now, self._settings.notice_interval)
        if notices:
            room = room_of(self.workers.values())
            for n_before, wish in notices:
                self._send(wish.client, WishWaits(wish.wish, why_waiting(wish.needs, n_before, room)))

    # --- jobs ----------------------------------------------------------------------------------------------

    def _start(self, wish: Wish, worker: Worker) -> None:
        name = self._new_name()
        gpus = tuple(worker.free_gpus[: wish.needs.n_gpu])
        job = Job(name, wish.name, wish.client, wish.wish, wish.needs, gpus, worker, wish.since)
        self._slots.take(job)
        client = self.clients[wish.client]
        client.hold(job)
        self._send(worker.peer, StartJob(name, wish.client.hex(), wish.name, wish.needs, gpus, client.show_logs))

    def _new_name(self) -> str:
        """Return a name that no job has, not even one that a worker made up."""
        self._n_started += 1
        name = f"{self._epoch}.{self._n_started}"
        return name if name not in self.jobs else self._new_name()

    def _remove(self, job: Job) -> None:
        """The job is gone: give its slots back."""
        self._slots.give_back(job)
        self._await_claim(job, None)
        client = self.clients.get(job.client)
        if client is not None:
            client.let_go(job)
            self._say_goodbye_when_done(client)

    def _job_ready(self, worker: Worker, message: JobReady) -> None:
        job = worker.jobs.get(message.job)
        if job is None:
            self._send(worker.peer, EndJob(message.job))  # it was given up while its worker was away
        if job is None or job.state != "starting":
            return
        job.state = "running"
        job.pid, job.addresses, job.log_path = message.pid, message.addresses, message.log_path
        self._grant_job(job)

    def _grant_job(self, job: Job) -> None:
        assert job.wish is not None
        self._send(job.client, JobGranted(job.wish, job.job, job.place(), job.addresses, job.log_path))

    def _release(self, client: Client, name: str) -> None:
        self._drop_claim(client, name)
        if name in client.jobs:
            self._end(client.jobs[name])

    def _end(self, job: Job, repeat: bool = False) -> None:
        if job.state != "ending" or repeat:
            job.state = "ending"
            self._await_claim(job, None)
            self._send(job.worker.peer, EndJob(job.job))
        client = self.clients.get(job.client)
        if client is not None:
            client.let_go(job)

    def _job_wrote(self, worker: Worker, message: JobWrote) -> None:
        job = worker.jobs.get(message.job)
        if job is not None and job.client in self.clients:
            self._send(job.client, JobPrinted(job.job, job.name, job.place(), message.text))

    def _job_ended(self, worker: Worker, message: JobEnded) -> None:
        job = worker.jobs.get(message.job)
        if job is None:
            return
        if job.state == "starting" and worker.draining:
            self._tell_or_retry(job, message.reason)
            self._remove(job)
            return
        if job.state != "ending":
            self._remember_death(job, message.reason)
        if job.state == "starting":
            assert job.wish is not None
            self._send(job.client, WishRefused(job.wish, f"the process on {worker.place.host} {message.reason}"))
        elif job.state == "running":
            job.pid = message.pid
            self._tell_loss(job, message)
        self._remove(job)

    def _tell_or_retry(self, job: Job, reason: str) -> None:
        """Its worker does not have the job: one that never ran is wished again, first in the queue; one that ran is lost."""
        if job.state == "starting" and job.client in self.clients:
            assert job.wish is not None
            self._queue.put_first(Wish(job.client, job.wish, job.name, job.needs, job.since, job.since))
        elif job.state == "running":
            self._tell_loss(job, JobEnded(job.job, job.pid, None, None, reason, False, "", job.log_path))

    def _tell_loss(self, job: Job, ended: JobEnded) -> None:
        if job.client in self.clients:
            self._send(
                job.client,
                JobLost(
                    job.job,
                    job.place(),
                    ended.exit_code,
                    ended.signal,
                    ended.reason,
                    ended.out_of_memory,
                    ended.log_tail,
                    ended.log_path,
                ),
            )

    def _remember_death(self, job: Job, reason: str) -> None:
        self.deaths.append({"actor": job.name, "job": job.job, "host": job.worker.place.host, "pid": job.pid, "reason": reason})

    # --- time ----------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        while (term := self._terms.pop(now)) is not None:
            kind, peer, name = term
            if kind == _ABSENCE:
                self._out_of_reach(peer)
            elif kind == _UNCLAIMED:
                self._end(self._slots.jobs[name])
            else:
                self._claim_fails(self.clients[peer], name)

    def _out_of_reach(self, peer: bytes) -> None:
        worker = self.workers.get(peer)
        if worker is not None:
            self._forget_worker(worker, f"is out of reach: the connection to its worker on {worker.place.host} was lost")
        else:
            self._forget_client(self.clients[peer])
        self._send(peer, JoinAgain())  # if it was a false alarm

    def _claim_fails(self, client: Client, name: str) -> None:
        client.claims.discard(name)
        reason = "is not known to any worker any more"
        self._send(client.peer, JobLost(name, Place("", 0, ""), None, None, reason, False, "", ""))

    def report(self, now: float) -> dict[str, object]:
        """Return the cluster as plain data; see report.py."""
        return {
            "cluster": self.cluster,
            "address": self.address,
            "version": self.versions.package,
            **report(self.workers.values(), self.clients.values(), self.wishes.values(), now),
            "deaths": list(self.deaths),
        }
