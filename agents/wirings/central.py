"""Central inference: one process chooses the actions for all actors, in batches; the learner trains from their rollouts.

    learner ──set_weights──▶ policy server(s)                     @batched: calls that wait together run as one
       ▲                       ▲ obs │ action
       └──────rollouts──────── environment actors                 have no weights; while one waits, others step

A rollout's version is that of the oldest weights that chose an action in it. Recurrent state travels with each call, so
that the servers keep nothing of anybody. More actors than processors keep these busy, since each waits for its actions.
When a server is lost, it is made anew, and so are the actors, who had its address. For GA3C, SEED RL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import parl_lite
from parl_lite.agents.collector import Collector, Columns
from parl_lite.agents.distributions import distribution_of
from parl_lite.agents.envs import spaces_of
from parl_lite.agents.rollout_worker import SamplingPolicy
from parl_lite.agents.seeds import env_seeds, seed_globally, seed_of_part, sequence_of, torch_generator
from parl_lite.agents.spaces import Spaces
from parl_lite.agents.trees import Array, Tree, map_tree
from parl_lite.agents.unrolling import initial_state, policy_step
from parl_lite.agents.updates import Update, counted, update_of
from parl_lite.errors import ActorLostError
from parl_lite.pool import RANK, ActorPool, Item

from .actors import WorkClock, actor_pool
from .wiring import Learner, Plan, Stopwatch, Wiring, lost_of

logger = logging.getLogger("parl_lite.agents")

SERVER_RANK = 2**30
"""Rank of the random streams of the first policy server, above those of all actors."""
MAX_FAILURES = 3
"""So many times in a row actors may lose their servers before there is a rollout."""


class PolicyServer:
    """Chooses actions for the observations of all actors."""

    def __init__(self, make_model: Callable[[Spaces], Any], spaces: Spaces, *, seed: int, rank: int) -> None:
        global_stream, action_stream = sequence_of(seed, SERVER_RANK + rank).spawn(2)
        seed_globally(global_stream)
        self.model = make_model(spaces)
        self.distribution = distribution_of(self.model)
        self.generator = torch_generator(action_stream)
        self.version = -1

    def set_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on."""
        self.model.set_weights(weights)
        self.version = version

    def choose(self, obs: Tree, first: Array, state: Tree) -> tuple[Array, Array, Tree, Array]:
        """Return actions, parameters, state, each (n, B, ...), and the version (n,), for n callers of B environments."""
        n, n_envs = first.shape
        flat = map_tree(lambda leaf: torch.from_numpy(leaf.reshape(n * n_envs, *leaf.shape[2:])), (obs, first, state))
        with torch.inference_mode():
            params, after = policy_step(self.model, *flat)
            action = self.distribution(params).sample(self.generator)
        action, params, after = map_tree(lambda leaf: leaf.numpy().reshape(n, n_envs, *leaf.shape[1:]), (action, params, after))
        return action, params, after, np.full(n, self.version)

    def ready(self, _: None) -> None:
        """Answer."""


def server_class(max_size: int, timeout: float) -> Any:
    """Return the remote class of servers that answer up to `max_size` calls together; see `parl_lite.batched`."""

    @parl_lite.remote_class
    class BatchingServer(PolicyServer):
        @parl_lite.batched(max_size=max_size, timeout=timeout)
        def act(self, obs: Tree, first: Array, state: Tree) -> tuple[Array, Array, Tree, Array]:
            return self.choose(obs, first, state)

    return BatchingServer


class RemotePolicy(SamplingPolicy):
    """Has its actions chosen by a server; the model here only knows the distribution and the state before an episode.

    Attributes:
        oldest: the oldest version that chose an action since it was set to None.
    """

    def __init__(self, server: Any, model: Any, n_envs: int) -> None:
        self.server = server
        self.distribution = distribution_of(model)
        self.squashes = getattr(self.distribution, "squashes", False)
        self.oldest: int | None = None
        self._state = initial_state(model, n_envs)

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...) and parameters (B, P) float32 for observations (B, *shape)."""
        state = map_tree(lambda leaf: leaf.numpy(), self._state)
        action, params, after, version = self.server.act(obs, first, state)
        self._state = map_tree(torch.from_numpy, after)
        self.oldest = int(version) if self.oldest is None else min(self.oldest, int(version))
        return action, params


@parl_lite.remote_class
class CentralActor:
    """Steps environments with the actions of one of some servers."""

    def __init__(
        self,
        make_envs: Callable[[], Any],
        make_model: Callable[[Spaces], Any],
        servers: Sequence[Any],
        *,
        unroll_length: int,
        seed: int,
        rank: int,
    ) -> None:
        global_stream, env_stream = sequence_of(seed, rank).spawn(2)
        seed_globally(global_stream)
        envs = make_envs()
        self.policy = RemotePolicy(servers[rank % len(servers)], make_model(spaces_of(envs)), envs.num_envs)
        self.collector = Collector(envs, self.policy, unroll_length, env_seeds(env_stream, envs.num_envs))
        self.clock = WorkClock()

    def rollout(self) -> Columns:
        """Return the next rollout, with `actor_waited` and `actor_seconds`; waiting for actions is work."""
        self.clock.start()
        self.policy.oldest = None
        columns = self.collector.collect()
        columns["version"] = np.asarray(self.policy.oldest, dtype=np.int64)
        return {**columns, **self.clock.stop()}


class Central(Wiring):
    """Central inference."""

    def __init__(self, plan: Plan, learner: Learner) -> None:
        super().__init__(plan, learner)
        settings = plan.settings
        server = server_class(settings.inference_batch, settings.inference_wait)
        seed = plan.actor_seed
        self.servers = ActorPool(server, settings.n_policies, plan.make_model, plan.spaces, seed=seed, rank=RANK)
        self._publish()
        self._n_formed = self._n_gone = 0
        self._form()

    @staticmethod
    def n_slots(settings: Any) -> int:
        """Return how many processes it needs besides the learners."""
        return int(settings.n_actors + settings.n_policies)

    @property
    def n_lost(self) -> int:
        """Actors and servers that were lost."""
        return self._n_gone + super().n_lost + lost_of(self.servers)

    def update(self) -> Update:
        """Learn from the next rollouts of any actors."""
        settings = self.plan.settings
        with Stopwatch() as waited:
            rollouts = [self._next() for _ in range(settings.rollouts_per_batch or settings.n_actors)]
        batch = self.learner.prepare(rollouts)
        rollouts = [counted(rollout) for rollout in rollouts]
        metrics = self.learner.learn(batch)
        self.version += 1
        self._publish()
        return update_of(rollouts, self.version - 1, metrics, waited.seconds)

    def close(self) -> None:
        """End actors and servers; a second time does nothing."""
        super().close()
        self.servers.close()

    def _next(self) -> Columns:
        """Return the next rollout of any actor; when actors have lost their server, they are made anew."""
        for attempt in range(1, MAX_FAILURES + 1):
            try:
                rollout: Columns = next(self._stream).result
                return rollout
            except ActorLostError as error:
                if attempt == MAX_FAILURES:
                    raise
                logger.warning("actors have lost their policy server, and are made anew: %s", error)
            self._n_gone += super().n_lost
            self.pool.close()
            self._form()
        raise AssertionError

    def _form(self) -> None:
        """Make the actors, with the addresses of the servers that are there now."""
        self.servers.map("ready", [None] * self.plan.settings.n_policies)
        self._n_formed += 1  # other seeds than before, or the new actors would play the same games again
        plan = replace(self.plan, actor_seed=seed_of_part(self.plan.actor_seed, self._n_formed))
        self.pool = actor_pool(plan, CentralActor, self.servers.actors)
        self._stream: Iterator[Item] = self.pool.stream("rollout", in_flight=self.plan.settings.calls_in_flight)

    def _publish(self) -> None:
        self.servers.broadcast("set_weights", self.version, self.learner.get_weights(), version=self.version + 1)
