"""A run from beginning to end: cluster, actors, learner, record, checkpoints, evaluation. Knows no algorithm.

run()
  Agent ◀── RunFolder                 the newest checkpoint, with --resume
  with Wiring(plan, learner)          actors are made                        wirings/
    Training.go()
      wiring.update() ──▶ RunRecord   until the target, total_steps or Ctrl-C
                      ──▶ RunFolder   a checkpoint now and then
                      ──▶ Evaluator   an evaluation now and then, and at the end
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import parl_lite
from parl_lite import snapshot
from parl_lite.agent import Agent
from parl_lite.errors import ParlError
from parl_lite.model import Model

from .env_settings import make_envs_from
from .envs import spaces_of
from .evaluation import Evaluation, Evaluator, GreedyPolicy
from .interrupts import Interrupt
from .progress import Progress
from .records import RunRecord
from .registry import Entry
from .rollout_worker import SamplingPolicy
from .run_folder import RunFolder
from .seeds import seed_globally, seed_of_part, sequence_of
from .spaces import Spaces
from .tensorboard import TensorBoard
from .video import filmed_envs
from .wirings.learners import LearnerGroup
from .wirings.wiring import Learner, LocalLearner, Plan, Wiring

logger = logging.getLogger("parl_lite.agents")

LEARNER_RANK = -1
MAX_EVAL_ENVS = 10
"""Environments that an evaluation steps together, at most."""


def run(
    entry: Entry,
    settings: Any,
    *,
    logdir: str | Path,
    address: str | None = None,
    target: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    tensorboard: bool = True,
    video: bool = False,
) -> dict[str, Any]:
    """Train with actors on a cluster and return the summary; leaves the cluster in the end.

    Writes settings.json, progress.csv, summary.json, curve.png, agent.ckpt and checkpoints to `logdir`. Ctrl-C ends it
    after the update in hand, a second one at once.

    Args:
        entry: the algorithm.
        settings: of the class `entry.settings`.
        logdir: folder of the run.
        address: "HOST:PORT" of a cluster; None starts a private one with a slot for each process.
        target: mean return of 100 episodes at which to stop.
        resume: go on with the run in the folder, from its newest checkpoint.
        overwrite: replace a run in the folder that was cut short.
        tensorboard: write event files to `logdir`/tensorboard, where tensorboardX is installed.
        video: film an episode at the end, to `logdir`/video.

    Raises:
        ParlError: the algorithm cannot act in the environment; there is nothing to resume, or it has other settings.
    """
    spaces = spaces_of_env(settings)
    entry.check_actions(spaces.action.kind, settings.env)
    seed_globally(sequence_of(settings.seed, LEARNER_RANK))
    torch.set_num_threads(settings.n_threads)
    folder = RunFolder(logdir)
    agent = Agent(entry.algorithm(_model_on_device(entry, settings, spaces), settings))
    saved = _restore(folder, entry, settings, agent) if resume else None
    if saved is None:
        folder.clear(overwrite=overwrite)
    counted = saved["record"] if saved else None
    n_parts = saved["n_parts"] + 1 if saved else 1
    if address or n_slots(entry, settings):
        parl_lite.connect(address, n_cpu=None if address else n_slots(entry, settings))
    try:
        plan = plan_of(entry, settings, spaces, n_parts, counted["n_updates"] if counted else 0)
        if saved:
            plan = replace(plan, first_env_steps=saved["record"]["env_steps"], resumed=saved.get("wiring", {}))
        plan = replace(plan, folder=str(folder.checkpoints.absolute()))
        learner = learner_of(plan, agent)
        with closing(learner), entry.wiring(plan, learner) as wiring, Evaluations(entry, settings) as evaluations:
            record = RunRecord(logdir, entry.name, settings, target, resumed=counted)
            with TensorBoard(folder.path / "tensorboard", record.env_steps, wanted=tensorboard) as board:
                record.writers.append(board.write)
                summary = Training(agent, wiring, record, folder, evaluations, n_parts).go()
    finally:
        parl_lite.disconnect()
    if video:
        film(entry, settings, agent, folder.path / "video")
    return summary


class Training:
    """The learner at work, from the first update of a run, or of a part of it, to its last."""

    def __init__(
        self, agent: Agent, wiring: Wiring, record: RunRecord, folder: RunFolder, evaluations: Evaluations, n_parts: int
    ) -> None:
        self.agent = agent
        self.wiring = wiring
        self.record = record
        self.folder = folder
        self.evaluations = evaluations
        self.n_parts = n_parts
        self.settings = record.settings
        self._checkpoint_due = time.monotonic() + self._interval

    def go(self) -> dict[str, Any]:
        """Learn to the end, and return the summary. Ctrl-C ends the learning; a second time, everything at once."""
        with Interrupt() as interrupt:
            stopped = self.learn(interrupt)
            self.save()
            if stopped != "interrupted":
                self.evaluate()
            lost = {"actors_lost": self.wiring.n_lost, "learners_lost": self.wiring.learner.n_lost}
            summary = self.record.finish(stopped, n_actors=self.settings.n_actors, **lost, **self.wiring.figures())
            self.agent.save(self.record.logdir / "agent.ckpt")
        return summary

    def learn(self, interrupt: Interrupt) -> str:
        """Learn until the target or the last step is reached, or Ctrl-C was pressed; return which: "solved", ..."""
        record = self.record
        next_evaluation = record.env_steps + self.settings.eval_interval
        with Progress() as progress:
            while record.env_steps < self.settings.total_steps and not record.solved:
                if interrupt.requested:
                    return "interrupted"
                record.update(self.wiring.update())
                progress.show(record.figures())
                if self.settings.eval_interval and record.env_steps >= next_evaluation:
                    next_evaluation += self.settings.eval_interval
                    self.evaluate()
                if time.monotonic() >= self._checkpoint_due:
                    self.save()
        return "solved" if record.solved else "total_steps"

    def evaluate(self) -> None:
        """Play some episodes and note how they went."""
        with self.record.paused():
            self.wiring.learner.synchronize()
            evaluation = self.evaluations.play(self.agent.get_weights())
        if evaluation is not None:
            self.record.evaluated(evaluation.figures())

    def save(self) -> None:
        """Write a checkpoint."""
        self.wiring.learner.synchronize()
        state = {
            "algo": self.record.algo,
            "settings": asdict(self.settings),
            "algorithm": self.agent.alg.state_dict(),
            "randomness": snapshot.capture_randomness(),
            "record": self.record.state(),
            "n_parts": self.n_parts,
            "wiring": self.wiring.save(),
        }
        self.folder.save(self.record.n_updates, state, self.record.score)
        self._checkpoint_due = time.monotonic() + self._interval

    @property
    def _interval(self) -> float:
        return float(self.settings.checkpoint_interval) or float("inf")


class Evaluations:
    """Makes the environments of evaluations when the first one is due, and keeps them."""

    def __init__(self, entry: Entry, settings: Any) -> None:
        self.entry = entry
        self.settings = settings
        self._evaluator: Evaluator | None = None

    def play(self, weights: dict[str, Any]) -> Evaluation | None:
        """Return an evaluation of the weights, None if none are wanted."""
        if not self.settings.eval_episodes:
            return None
        with torch.random.fork_rng(devices=[]):  # what is learned later does not depend on it
            if self._evaluator is None:
                self._evaluator = evaluator_of(self.entry, self.settings)
            return self._evaluator.evaluate(weights, self.settings.eval_episodes)

    def __enter__(self) -> Evaluations:
        return self

    def __exit__(self, *_: object) -> None:
        if self._evaluator is not None:
            self._evaluator.close()


def evaluator_of(entry: Entry, settings: Any) -> Evaluator:
    """Return what evaluates models of a run."""
    n_envs = min(settings.eval_episodes, MAX_EVAL_ENVS)
    make_envs = partial(make_envs_from, settings, n_envs, evaluation=True)
    return Evaluator(make_envs, partial(entry.make_model, settings), _player(entry, settings), seed=settings.seed)


def _player(entry: Entry, settings: Any) -> Callable[[Any, torch.Generator, int], Any]:
    """Return what makes the policy of an evaluation."""
    if entry.make_policy is not None:
        return partial(_policy, entry, settings)
    return SamplingPolicy if settings.eval_sampled else GreedyPolicy


def _policy(entry: Entry, settings: Any, model: Model, generator: torch.Generator, n_envs: int) -> Any:
    assert entry.make_policy is not None
    return entry.make_policy(entry.algorithm(model, settings), n_envs, greedy=not settings.eval_sampled)


def film(entry: Entry, settings: Any, agent: Agent, folder: Path) -> None:
    """Write a video of one episode with the likeliest actions; where that does not work, say so."""
    try:
        make_model = partial(entry.make_model, settings)
        evaluator = Evaluator(filmed_envs(settings, folder), make_model, _player(entry, settings), seed=settings.seed)
        with closing(evaluator):
            evaluator.evaluate(agent.get_weights(), 1)
    except ParlError as error:
        logger.warning("no video: %s", error)


def spaces_of_env(settings: Any) -> Spaces:
    """Return what a network must know of an environment; makes one and closes it."""
    envs = make_envs_from(settings, 1)
    try:
        return spaces_of(envs)
    finally:
        envs.close()


def _model_on_device(entry: Entry, settings: Any, spaces: Spaces) -> Model:
    model: Model = entry.make_model(settings, spaces).to(settings.device)
    return model


def _restore(folder: RunFolder, entry: Entry, settings: Any, agent: Agent) -> dict[str, Any]:
    """Put an agent back to the newest checkpoint of a folder, and return that."""
    folder.check_same(entry.name, settings)
    saved = folder.newest()
    agent.alg.load_state_dict(saved["algorithm"])
    for trouble in snapshot.restore_randomness(saved["randomness"]):
        logger.warning("not restored: %s", trouble)
    return saved


def learner_of(plan: Plan, agent: Agent) -> Learner:
    """Return who learns: this process, or as many others as the settings say."""
    n_learners = getattr(plan.settings, "n_learners", 1)
    return LearnerGroup(plan, agent, n_learners) if n_learners > 1 else LocalLearner(agent)


def n_slots(entry: Entry, settings: Any) -> int:
    """Return how many processes a run needs besides this one."""
    n_learners = getattr(settings, "n_learners", 1)
    return entry.wiring.n_slots(settings) + (n_learners if n_learners > 1 else 0)


def plan_of(entry: Entry, settings: Any, spaces: Spaces, n_parts: int = 1, first_version: int = 0) -> Plan:
    """Return what the n-th part of a run is made from."""
    return Plan(
        settings=settings,
        make_envs=partial(make_envs_from, settings, settings.envs_per_actor),
        make_model=partial(entry.make_model, settings),
        make_algorithm=partial(_algorithm, entry.algorithm, settings),
        spaces=spaces,
        actor_seed=seed_of_part(settings.seed, n_parts),
        first_version=first_version,
        make_policy=entry.make_policy,
    )


def _algorithm(make: Callable[[Model, Any], Any], settings: Any, model: Model) -> Any:
    return make(model, settings)
