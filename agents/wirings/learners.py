"""Several learners: processes that each learn from a share of the rollouts and average their gradients. Has the face of one.

    this process, the coordinator           learner 0        learner 1        ...
      a TCPStore that outlives them all  ◀── form ───────────── form
      learn(rollouts) ──shares──────────▶    learn ◀─gradients─▶ learn        gloo, among themselves (averaging.py)
                      ◀─metrics, weights──

All have the same weights after each update. When one is lost, the others form a new group with the state of the oldest
among them, and learn from the rollouts in hand once more; whoever takes its place joins at the next update. The
coordinator is no learner: it needs no share, and its own agent is brought up to date for checkpoints and evaluations.

gloo has no authentication: on several machines, the network must be private.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import parl_lite
from parl_lite import client, hostos
from parl_lite.agent import Agent
from parl_lite.agents.collector import Columns, concatenate
from parl_lite.agents.seeds import seed_globally, sequence_of
from parl_lite.agents.spaces import Spaces
from parl_lite.agents.updates import without_times
from parl_lite.algorithm import Algorithm
from parl_lite.errors import ActorLostError, ParlError
from parl_lite.futures import FIRST_EXCEPTION, Future
from parl_lite.pool import RANK, ActorPool
from parl_lite.pool_members import loss_of

from .averaging import TIMEOUT, GradientAverage, PeerLostError
from .wiring import Plan, lost_of, scalars

logger = logging.getLogger("parl_lite.agents")

LEARNER_RANK = 2**29
"""Rank of the random streams of the first learner, above those of all actors."""
GRACE = 10.0
"""Seconds after that in which a learner must have noticed that others are lost."""
HERE = "127.0.0.1"
MAX_FORMATIONS = 5
"""So many groups in a row may break before one update is made."""


@parl_lite.remote_class
class LearnerActor:
    """One of several learners."""

    def __init__(self, make_algorithm: Callable[[], Algorithm], *, n_threads: int, seed: int, rank: int) -> None:
        torch.set_num_threads(n_threads)
        seed_globally(sequence_of(seed, LEARNER_RANK + rank))
        self.agent = Agent(make_algorithm())
        self.average = GradientAverage(self.agent.alg)

    def ready(self, _: None) -> None:
        """Answer."""

    def load(self, state: dict[str, Any]) -> None:
        """Take over the state of an algorithm."""
        self.agent.alg.load_state_dict(state)

    def form(self, host: str, port: int, generation: int, rank: int, size: int) -> None:
        """Join a group; see `GradientAverage.form`."""
        os.environ["GLOO_SOCKET_IFNAME"] = _interface_towards(host)  # gloo would look its own name up
        self.average.form(host, port, generation, rank, size)

    def learn(self, rollouts: Sequence[Columns], env_steps: int, wanted: bool) -> tuple[dict[str, float], Any]:
        """Learn from a share, which may be empty; return metrics, and the weights if they are wanted.

        Args:
            rollouts: the share.
            env_steps: steps of the whole run before, for the schedules of an algorithm with an attribute of that name.
            wanted: whether to return weights.
        """
        algorithm = self.agent.alg
        if hasattr(algorithm, "env_steps"):
            algorithm.env_steps = env_steps
        metrics = scalars(self.agent.learn(concatenate(rollouts))) if rollouts else {}
        self.average.join()
        return metrics, algorithm.get_weights() if wanted else None

    def state(self) -> dict[str, Any]:
        """Return the state of its algorithm."""
        state: dict[str, Any] = self.agent.alg.state_dict()
        return state


class LearnerGroup:
    """Several learners that are used like one.

    Args:
        plan: of the run.
        agent: the coordinator's, whose state they begin with.
        n: how many.
    """

    def __init__(self, plan: Plan, agent: Agent, n: int) -> None:
        settings = plan.settings
        self.agent = agent
        self.env_steps = int(getattr(agent.alg, "env_steps", 0))
        self._weights = agent.get_weights()
        self._members: list[Any] = []
        self._generation = 0
        make_algorithm = partial(make_on, settings.device, plan.make_model, plan.make_algorithm, plan.spaces)
        how = {"n_threads": settings.n_threads, "seed": plan.actor_seed}
        self.pool = ActorPool(LearnerActor, n, make_algorithm, **how, rank=RANK)
        self._host = ""
        self._store: Any = None

    def prepare(self, rollouts: Sequence[Columns]) -> list[Columns]:
        """Return rollouts one by one, for the learners to put side by side."""
        return [without_times(rollout) for rollout in rollouts]

    def learn(self, rollouts: Sequence[Columns]) -> dict[str, float]:
        """Make one update from rollouts, each learner from its share; return means of what they return."""
        for _ in range(MAX_FORMATIONS):
            results = self._learn(rollouts) if self._form() else None
            if results is not None:
                break
        else:
            raise ParlError(f"{MAX_FORMATIONS} groups of learners broke one after the other: see the warnings before.")
        self._weights = results[0][1]
        self.env_steps += sum(int(rollout["valid"].sum()) for rollout in rollouts)
        return _means([metrics for metrics, _ in results if metrics])

    def get_weights(self) -> dict[str, Any]:
        """Return the weights after the last update."""
        return self._weights

    def synchronize(self) -> None:
        """Bring the coordinator's agent up to date."""
        for member in self._members:
            try:
                self.agent.alg.load_state_dict(member.state())
            except ActorLostError:
                continue
            if hasattr(self.agent.alg, "env_steps"):
                self.agent.alg.env_steps = self.env_steps
            return

    @property
    def n_lost(self) -> int:
        """Learners that were lost."""
        return lost_of(self.pool)

    def close(self) -> None:
        """End the learners; a second time does nothing."""
        self.pool.close()

    def __enter__(self) -> LearnerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _learn(self, rollouts: Sequence[Columns]) -> list[Any] | None:
        """Return what the learners returned, None if one of them was lost."""
        n = len(self._members)
        calls = [(member, "learn", (rollouts[rank::n], self.env_steps, rank == 0)) for rank, member in enumerate(self._members)]
        return self._call(calls)

    def _form(self) -> bool:
        """See to it that all learners that are there are one group; return whether they are."""
        there = self._there()
        old = [member for member in self._members if any(member is each for each in there)]
        if len(old) == len(there) == len(self._members):
            return True
        new = [member for member in there if not any(member is each for each in old)]
        self._generation += 1
        self._members = []
        if not old and self._call([(new[0], "load", (self.agent.alg.state_dict(),))]) is None:
            return False
        members = [*old, *new]
        self._listen(_address_for(members))
        where = (self._host, self._store.port, self._generation)
        if self._call([(member, "form", (*where, rank, len(members))) for rank, member in enumerate(members)]) is None:
            return False
        self._members = members
        return True

    def _listen(self, host: str) -> None:
        """Have a store at an address that all learners reach."""
        if host != self._host:
            self._host, self._store = host, _store_at(host)

    def _there(self) -> list[Any]:
        """Return the learners that are there; waits for one where there is none."""
        if not len(self.pool):
            self.pool.map("ready", [None])
        return self.pool.actors

    def _call(self, calls: Sequence[tuple[Any, str, tuple[Any, ...]]]) -> list[Any] | None:
        """Call learners at the same time; return their results, or None if one was lost before all have returned."""
        futures = []
        for member, method, arguments in calls:
            try:
                futures.append(getattr(member.futures, method)(*arguments))
            except ActorLostError as error:
                logger.warning("a learner is lost: %s", error)
        _, waiting = parl_lite.wait(futures, return_when=FIRST_EXCEPTION)
        _, stuck = parl_lite.wait(waiting, timeout=TIMEOUT + GRACE)
        for (member, _, _), future in zip(calls, futures, strict=False):
            if future in stuck:
                member.destroy()  # it has stopped, but is not gone; the others have given it up
        whole = len(futures) == len(calls) and all(self._has_result(future) for future in futures)
        return [future.result() for future in futures] if whole else None

    def _has_result(self, future: Future) -> bool:
        """Return whether a call has returned; raises what it raised, unless that is the loss of a learner."""
        error = future.exception()
        if error is None:
            return True
        if loss_of(future) is None and not isinstance(error, PeerLostError):
            raise error
        logger.warning("the learners form a new group: %s", str(error).splitlines()[0])
        return False


def make_on(device: str, make_model: Any, make_algorithm: Any, spaces: Spaces) -> Algorithm:
    """Return an algorithm whose model is on a device."""
    algorithm: Algorithm = make_algorithm(make_model(spaces).to(device))
    return algorithm


def _store_at(host: str) -> Any:
    """Return a store that listens on one of this machine's addresses."""
    listener = socket.create_server((host, 0))
    port, timeout = listener.getsockname()[1], timedelta(seconds=TIMEOUT)
    return TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=listener.detach())


def _address_for(learners: Sequence[Any]) -> str:
    """Return the address of this machine for these learners: the loopback's if all are here."""
    for learner in learners:
        address = learner._parl_link.address
        way = urlsplit(client.nearest(address.addresses, address.boot_id, hostos.boot_id()))
        if way.scheme == "tcp" and way.hostname != HERE:
            return _address_towards(str(way.hostname))
    return HERE


def _address_towards(host: str) -> str:
    """Return the address of this machine on the way to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        address: str = probe.getsockname()[0]
        return address


def _interface_towards(host: str) -> str:
    """Return the name of this machine's network interface on the way to another."""
    own = _address_towards(host)
    names: list[str] = [name for name, found in psutil.net_if_addrs().items() if own in [each.address for each in found]]
    return names[0]


def _means(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in metrics if name in each])) for name in metrics[0]} if metrics else {}
