"""A run from beginning to end: cluster, actors, learner, record. Knows the face of parl_lite, and no algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import parl_lite
from parl_lite.agent import Agent
from parl_lite.algorithm import Algorithm
from parl_lite.model import Model

from .collector import concatenate
from .envs import Spaces, make_envs, spaces_of
from .progress import Progress
from .records import RunRecord
from .rollout_worker import RolloutWorker
from .seeds import seed_globally, sequence_of
from .trajectories import Trajectories

LEARNER_RANK = -1


def learn_from_trajectories(
    agent: Agent, trajectories: Trajectories, record: RunRecord, total_steps: int, rollouts_per_batch: int
) -> str:
    """Learn until the target or `total_steps` is reached or Ctrl-C is pressed; return which: "solved", ..."""
    try:
        with Progress() as progress:
            trajectories.publish(record.n_updates, agent.get_weights())
            while record.env_steps < total_steps and not record.solved:
                batch = concatenate(trajectories.take(rollouts_per_batch))
                lag = float(np.mean(record.n_updates - batch["version"]))
                metrics = agent.learn(batch)
                record.update(batch, lag, metrics)
                trajectories.publish(record.n_updates, agent.get_weights())
                progress.show(record.figures())
    except KeyboardInterrupt:
        return "interrupted"
    return "solved" if record.solved else "total_steps"


def run(
    algo: str,
    settings: Any,
    make_model: Callable[[Spaces], Model],
    make_algorithm: Callable[[Model, Any], Algorithm],
    *,
    logdir: str | Path,
    address: str | None = None,
    target: float | None = None,
) -> dict[str, Any]:
    """Train with actors on a cluster and return the summary; leaves the cluster in the end.

    Writes settings.json, progress.csv, summary.json, curve.png and agent.ckpt to `logdir`.

    Args:
        algo: name of the algorithm.
        settings: a dataclass such as ImpalaSettings.
        make_model: makes the network; called here and in every actor, so it must be picklable.
        make_algorithm: makes the algorithm from a model and the settings.
        logdir: folder of the run.
        address: "HOST:PORT" of a cluster; None starts a private one with a slot for each actor.
        target: mean return of 100 episodes at which to stop.
    """
    seed_globally(sequence_of(settings.seed, LEARNER_RANK))
    agent = Agent(make_algorithm(make_model(spaces_of_env(settings.env)), settings))
    parl_lite.connect(address, n_cpu=None if address else settings.n_actors)
    try:
        make_actor = partial(_make_actor, settings, make_model)
        with Trajectories(make_actor, settings.n_actors, calls_in_flight=settings.calls_in_flight) as trajectories:
            record = RunRecord(logdir, algo, settings, target)
            batch = settings.rollouts_per_batch or settings.n_actors
            stopped = learn_from_trajectories(agent, trajectories, record, settings.total_steps, batch)
            summary = record.finish(stopped, n_actors=settings.n_actors, actors_lost=trajectories.n_lost)
            agent.save(record.logdir / "agent.ckpt")
    finally:
        parl_lite.disconnect()
    return summary


def spaces_of_env(env: str) -> Spaces:
    """Return what a network must know of an environment; makes one and closes it."""
    envs = make_envs(env, 1)
    try:
        return spaces_of(envs)
    finally:
        envs.close()


def _make_actor(settings: Any, make_model: Callable[[Spaces], Model], rank: int) -> Any:
    remote = parl_lite.remote_class(RolloutWorker)
    return remote(
        partial(make_envs, settings.env, settings.envs_per_actor),
        make_model,
        unroll_length=settings.unroll_length,
        seed=settings.seed,
        rank=rank,
    )
