"""Who plays in the wiring `replay`: actors that write to the replay by themselves, or this process. Knows Player and writers.

Both are asked by `poll` for reports: of each rollout the columns that are counted, and the rollout itself where the learner's
process keeps the memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import parl_lite
from parl_lite import snapshot
from parl_lite.agents.collector import Columns
from parl_lite.agents.env_snapshot import CannotSave, capture_envs, restore_envs
from parl_lite.agents.envs import spaces_of
from parl_lite.agents.player import Player, without_unused
from parl_lite.agents.replay import ReplayWriter, pack_frames
from parl_lite.agents.seeds import seed_globally, sequence_of
from parl_lite.agents.updates import counted
from parl_lite.errors import ActorLostError
from parl_lite.futures import FIRST_COMPLETED, Future
from parl_lite.pool_members import loss_of

from .actors import WorkClock, actor_pool
from .memory import frame_stack_of
from .wiring import Plan, lost_of

logger = logging.getLogger("parl_lite.agents")

PATIENCE = 0.5
"""Seconds for which an actor tries to get rid of a rollout before it listens to the learner again."""
COLLECTOR_FIXED = ("envs", "policy", "spaces")
"""Attributes of a collector that are saved elsewhere, or not at all."""
IN_FLIGHT = 2
"""Calls that an actor has at a time, so that it is never idle."""


class Report(NamedTuple):
    """What a player says of one rollout."""

    counted: Columns
    rollout: Columns | None
    """To be stored; None where that was done."""
    source: int
    number: int


@parl_lite.remote_class
class ReplayActor:
    """Plays, and writes its rollouts to the shards."""

    def __init__(
        self,
        make_envs: Callable[[], Any],
        make_model: Callable[..., Any],
        make_algorithm: Callable[[Any], Any],
        make_policy: Callable[..., Any],
        first_source: int,
        *,
        unroll_length: int,
        seed: int,
        rank: int,
    ) -> None:
        global_stream, env_stream = sequence_of(seed, rank).spawn(2)
        seed_globally(global_stream)
        torch.set_num_threads(1)
        envs = make_envs()
        self.algorithm = make_algorithm(make_model(spaces_of(envs)))
        self.settings = self.algorithm.settings
        n_actors = self.settings.n_actors
        place = {"place": rank % n_actors, "n_places": n_actors}  # who takes the place of a lost one explores as that did
        self.player = Player(envs, self.algorithm, make_policy, **place, seeds=env_stream)
        self.source, self.number = first_source + rank, 0
        self._place = rank % n_actors
        stack = frame_stack_of(self.settings)
        self.writer = ReplayWriter([], self.source, frame_stack=stack) if self.settings.n_shards else None
        self._stack = stack
        self._version = -1
        self._pending: Columns | None = None
        self._clock = WorkClock()

    def ready(self, _: None) -> None:
        """Answer."""

    def set_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on; the target network takes them, too, for the priorities of new steps."""
        self.algorithm.model.set_weights(weights)
        self.algorithm.target.set_weights(weights)
        self._version = version

    def set_shards(self, shards: Sequence[Any]) -> None:
        """Write to these shards, each actor to that of its place, whatever its source."""
        n = len(shards)
        if self.writer is not None:
            self.writer.set_shards([shards[(index - self.source + self._place) % n] for index in range(n)])

    def work(self, env_steps: int) -> Report | None:
        """Play a rollout and write it; None if the shards do not take it yet: it is kept for the next call.

        Without shards the rollout is in the report.
        """
        if self._pending is None:
            self._clock.start()
            self._pending = self.player.play(self._version, env_steps)
            times = self._clock.stop()
            self._pending = {**self._pending, **times}
        report = self._report(self._pending)
        if self.writer is not None:
            try:
                self.writer.write(without_unused(self._pending), PATIENCE)
            except TimeoutError:
                return None
        self._pending = None
        self.number += 1
        return report

    def _report(self, columns: Columns) -> Report:
        if self.writer is not None:
            return Report(counted(columns), None, self.source, self.number)
        kept = without_unused(columns)
        return Report(counted(columns), pack_frames(kept, self._stack) if self._stack else kept, self.source, self.number)


class RemotePlayers:
    """Actors that are kept busy.

    Attributes:
        n_lost: those that were lost.
    """

    def __init__(self, plan: Plan, first_source: int) -> None:
        self.pool = actor_pool(plan, ReplayActor, plan.make_algorithm, plan.make_policy, first_source)
        self._under_way: dict[Future, Any] = {}

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""
        return lost_of(self.pool)

    def publish(self, version: int, weights: Any) -> None:
        """Send weights to all actors."""
        self.pool.broadcast("set_weights", version, weights, version=version + 1)

    def connect(self, shards: Sequence[Any]) -> None:
        """Send all actors, those to come too, the shards to write to."""
        self.pool.broadcast("set_shards", list(shards))

    def poll(self, version: int, env_steps: int, timeout: float) -> list[Report]:
        """Return the reports that have come; waits for the first at most so many seconds."""
        self._ask(env_steps)
        if not self._under_way:
            self.pool.map("ready", [None])  # waits for an actor
            return []
        done, _ = parl_lite.wait(self._under_way, timeout, FIRST_COMPLETED)
        reports = []
        for future in [future for future in self._under_way if future in done]:
            del self._under_way[future]
            if loss_of(future) is None:
                reports.append(future.result())
        self._ask(env_steps)
        return [report for report in reports if report is not None]

    def save(self) -> dict[str, Any]:
        """Return nothing: actors of a resumed run begin new episodes."""
        return {}

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        self.pool.close()

    def _ask(self, env_steps: int) -> None:
        """Keep every actor at work, new ones too."""
        calls: dict[int, int] = {}
        for actor in self._under_way.values():
            calls[id(actor)] = calls.get(id(actor), 0) + 1
        for actor in self.pool.actors:
            for _ in range(IN_FLIGHT - calls.get(id(actor), 0)):
                try:
                    self._under_way[actor.futures.work(env_steps)] = actor
                except ActorLostError:
                    break  # the pool will notice


class LocalPlayer:
    """This process plays with the learner's own algorithm, a rollout whenever it is asked."""

    n_lost = 0

    def __init__(self, plan: Plan, algorithm: Any, first_source: int) -> None:
        self.envs = plan.make_envs()
        stream: np.random.SeedSequence = sequence_of(plan.actor_seed, 0)
        self.player = Player(self.envs, algorithm, plan.make_policy, place=0, n_places=1, seeds=stream)
        self.source, self.number = first_source, 0
        self._inexact = False
        if plan.resumed.get("players"):
            self._restore(plan.resumed["players"])

    def poll(self, version: int, env_steps: int, timeout: float) -> list[Report]:
        """Play a rollout."""
        columns = self.player.play(version, env_steps)
        self.number += 1
        return [Report(columns, without_unused(columns), self.source, self.number - 1)]

    def save(self) -> dict[str, Any]:
        """Return all there is to go on bit by bit; nothing, and say so once, where environments cannot be saved."""
        try:
            envs = capture_envs(self.envs)
            policy, lost = snapshot.capture(vars(self.player.policy), skip=("algorithm",))
            if lost:
                raise CannotSave(", ".join(lost))
        except CannotSave as error:
            if not self._inexact:
                logger.warning("when this run is resumed, it begins new episodes: %s cannot be saved", error)
            self._inexact = True
            return {}
        collector, _ = snapshot.capture(vars(self.player.collector), skip=COLLECTOR_FIXED)
        counts = {"source": self.source, "number": self.number}
        return {**counts, "envs": envs, "policy": policy, "collector": collector, "randomness": snapshot.capture_randomness()}

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.source, self.number = state["source"], state["number"]
        restore_envs(self.envs, state["envs"])
        snapshot.restore(vars(self.player.policy), state["policy"], skip=("algorithm",))
        snapshot.restore(vars(self.player.collector), state["collector"], skip=COLLECTOR_FIXED)
        snapshot.restore_randomness(state["randomness"])
