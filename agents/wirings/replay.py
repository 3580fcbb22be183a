"""Replay: actors fill a memory, the learner learns from batches drawn from it; nobody waits unless one side gets too far ahead.

    actors                       shards of the replay              learner
      work ──rollouts──────────▶  limiter, buffer  ──batches─────▶  learn, k batches asked for in advance
        ◀──Wait: too far ahead──         ◀──priorities───────────
      ◀──────────────────set_weights, every so many updates────────

With n_shards = 0 the learner's process keeps the memory, and actors send it their rollouts; with n_actors = 0 it plays, too:
a rollout, then as many updates as it makes due, always in the same order. For DQN and its kin, Ape-X, R2D2, DDPG, SAC.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from parl_lite.agents.replay import ReplayClient
from parl_lite.agents.updates import Update, update_of
from parl_lite.errors import ActorLostError

from .memory import LocalReplay, local_replay, replay_client
from .replay_actors import LocalPlayer, RemotePlayers, Report
from .wiring import LocalLearner, Plan, Stopwatch, Wiring, scalars

logger = logging.getLogger("parl_lite.agents")

WAIT = 0.02
"""Seconds that the learner waits for a batch before it looks at what the actors say."""
FIGURES_PERIOD = 50
"""Updates between two looks at what the shards count."""


class Replay(Wiring):
    """Learning from a replay."""

    learner: LocalLearner

    def __init__(self, plan: Plan, learner: LocalLearner) -> None:
        super().__init__(plan, learner)
        settings, algorithm = plan.settings, learner.agent.alg
        self.env_steps = plan.first_env_steps
        self.saved: str | None = plan.resumed.get("replay") and f"{plan.folder}/replay/{plan.resumed['replay']}"
        extra = tuple(getattr(algorithm, "extra_columns", ()))
        self.memory: LocalReplay | ReplayClient
        if settings.n_shards:
            self.memory = replay_client(settings, extra, plan.actor_seed, lambda: self.saved)
        else:
            self.memory = local_replay(settings, extra, plan.actor_seed, self.saved)
        self._counts = self.memory.figures()
        first_source = self._counts["next_source"]
        self.players = RemotePlayers(plan, first_source) if settings.n_actors else LocalPlayer(plan, algorithm, first_source)
        self._shards_lost = -1
        self._reports: deque[Report] = deque()
        self._lag = 0.0
        self._n_learned = 0
        self._publish()

    @staticmethod
    def n_slots(settings: Any) -> int:
        """Return how many processes it needs besides the learner."""
        return int(settings.n_actors + settings.n_shards)

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""
        return self.players.n_lost

    def update(self) -> Update:
        """Learn from a batch if there is one, and take note of what the actors have done."""
        with Stopwatch() as waited:
            self._connect()
            batch = self._batch()
            reports = self._collect(0.0 if batch is not None else WAIT)
        metrics = {} if batch is None else self._learn(batch)
        update = update_of([report.counted for report in reports], self.version, metrics, waited.seconds)
        self.env_steps += update.env_steps
        if reports:
            self._lag = update.lag
        return update._replace(lag=self._lag, n_updates=int(batch is not None))

    def figures(self) -> dict[str, Any]:
        """Return what was inserted and consumed in the whole run, and shards that were lost."""
        self._counts = self.memory.figures()
        names = ("inserted", "consumed", "size", "insert_waits", "sample_waits")
        return {**{f"replay_{name}": self._counts[name] for name in names}, "shards_lost": self.memory.n_lost}

    def save(self) -> dict[str, Any]:
        """Save the memory, if that is wanted, and what the players need to go on."""
        if self.plan.settings.save_replay:
            name = "b" if self.saved is not None and self.saved.endswith("/a") else "a"
            folder = f"{self.plan.folder}/replay/{name}"
            try:
                self.memory.save(folder)
                self.saved = folder
            except ActorLostError as error:
                logger.warning("the replay is not saved this time, the save before counts: %s", error)
        return {"replay": self.saved and self.saved.rpartition("/")[2], "players": self.players.save()}

    def close(self) -> None:
        """End actors and shards; a second time does nothing."""
        self.players.close()
        self.memory.close()

    def _batch(self) -> dict[str, Any] | None:
        """Return the next batch, None if there is none yet."""
        settings = self.plan.settings
        start = settings.importance_exponent
        self.memory.beta = start + (1 - start) * min(1.0, self.env_steps / settings.total_steps)
        if isinstance(self.memory, LocalReplay):
            return self.memory.sample()
        try:
            return self.memory.sample(WAIT)
        except TimeoutError:
            return None

    def _learn(self, batch: dict[str, Any]) -> dict[str, float]:
        """Make an update; send back priorities, and weights when they are due."""
        learned = self.learner.agent.learn(batch)
        self.version += 1
        if "priority" in learned:
            self.memory.update_priorities(batch["index"], learned["priority"])
        if self.version % self.plan.settings.publish_interval == 0:
            self._publish()
        if self._n_learned % FIGURES_PERIOD == 0:
            self._counts = self.memory.figures()
        self._n_learned += 1
        return {**scalars(learned), "inserted": self._counts["inserted"], "consumed": self._counts["consumed"]}

    def _collect(self, timeout: float) -> list[Report]:
        """Return the reports whose rollouts are stored by now; where they are to be stored here, no more than may be."""
        if isinstance(self.memory, ReplayClient):
            return self.players.poll(self.version, self.env_steps, 0.0)
        due = timeout > 0 or isinstance(self.players, RemotePlayers)
        if due and not self._reports:
            self._reports.extend(self.players.poll(self.version, self.env_steps, timeout))
        stored = []
        while self._reports and self._store(self._reports[0]):
            stored.append(self._reports.popleft())
        return stored

    def _store(self, report: Report) -> bool:
        assert isinstance(self.memory, LocalReplay) and report.rollout is not None
        return self.memory.insert(report.rollout, report.source, report.number)

    def _publish(self) -> None:
        if isinstance(self.players, RemotePlayers):
            self.players.publish(self.version, self.learner.get_weights())

    def _connect(self) -> None:
        """Tell the actors of shards that took the place of lost ones."""
        if isinstance(self.memory, ReplayClient) and self.memory.n_lost != self._shards_lost:
            self._shards_lost = self.memory.n_lost
            assert isinstance(self.players, RemotePlayers)
            self.players.connect(self.memory.shards)
