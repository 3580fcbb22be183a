"""IMPALA learns CartPole-v1: actors in processes of their own play, this process learns from what they send.

    python examples/cartpole_impala.py                               # a private cluster on this machine
    python examples/cartpole_impala.py --address 10.0.0.1:8010       # a cluster that `parl-lite start` began

Writes progress.csv, curve.png, summary.json, settings.json and agent.ckpt to --logdir. It is written out here to show how
little it takes; `python -m parl_lite.agents impala` does the same, with checkpoints and evaluation.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import islice
from pathlib import Path

import torch

import parl_lite as parl
from parl_lite.agents.collector import concatenate
from parl_lite.agents.env_settings import make_envs_from
from parl_lite.agents.impala import IMPALA, ImpalaSettings
from parl_lite.agents.models import actor_critic
from parl_lite.agents.progress import Progress
from parl_lite.agents.records import RunRecord, summary_text
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.seeds import seed_globally, sequence_of
from parl_lite.agents.training import spaces_of_env
from parl_lite.agents.updates import update_of
from parl_lite.pool import RANK

Actor = parl.remote_class(RolloutWorker)


def make_actors(settings: ImpalaSettings) -> parl.ActorPool:
    """Start the actors: each 16 environments and a copy of the policy, somewhere on the cluster."""
    make_envs = partial(make_envs_from, settings, settings.envs_per_actor)
    make_model = partial(actor_critic, settings)
    how = {"unroll_length": settings.unroll_length, "seed": settings.seed, "rank": RANK}
    return parl.ActorPool(Actor, settings.n_actors, make_envs, make_model, **how)


def learn(agent: parl.Agent, actors: parl.ActorPool, record: RunRecord, settings: ImpalaSettings) -> str:
    """Learn until the target is reached, the steps are used up, or Ctrl-C is pressed."""
    try:
        with Progress() as progress:
            actors.broadcast("set_weights", 0, agent.get_weights())
            rollouts = (rollout for _, rollout in actors.stream("sample"))
            while record.env_steps < settings.total_steps and not record.solved:
                batch = list(islice(rollouts, settings.n_actors))
                metrics = agent.learn(concatenate(batch))
                record.update(update_of(batch, record.n_updates, metrics))
                actors.broadcast("set_weights", record.n_updates, agent.get_weights())
                progress.show(record.figures())
    except KeyboardInterrupt:
        return "interrupted"
    return "solved" if record.solved else "total_steps"


def main() -> None:
    """Read the flags, train, say how it went."""
    parser = argparse.ArgumentParser(description="IMPALA learns CartPole-v1.")
    parser.add_argument("--total-steps", type=int, default=500_000, help="environment steps at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logdir", type=Path, help="folder of the run (runs/impala-CartPole-v1-SEED)")
    parser.add_argument("--n-actors", type=int, default=2, help="actor processes")
    parser.add_argument("--address", help="HOST:PORT of a cluster (a private one on this machine)")
    parser.add_argument("--target", type=float, default=475.0, help="mean return of 100 episodes to stop at")
    parser.add_argument("--require-target", action="store_true", help="exit with 1 if it was not reached")
    flags = parser.parse_args()
    settings = ImpalaSettings(seed=flags.seed, total_steps=flags.total_steps, n_actors=flags.n_actors, reward_scale=0.1)
    logdir = flags.logdir or Path("runs") / f"impala-{settings.env}-{settings.seed}"

    torch.set_num_threads(1)  # the network is small, and the actors need the cores
    seed_globally(sequence_of(settings.seed, rank=-1))
    agent = parl.Agent(IMPALA(actor_critic(settings, spaces_of_env(settings)), settings))
    parl.connect(flags.address, n_cpu=None if flags.address else settings.n_actors)
    with make_actors(settings) as actors:
        record = RunRecord(logdir, "impala", settings, flags.target)
        stopped = learn(agent, actors, record, settings)
        summary = record.finish(stopped, n_actors=settings.n_actors)
    agent.save(logdir / "agent.ckpt")
    parl.disconnect()
    print(summary_text(summary, logdir))
    raise SystemExit(flags.require_target and not record.solved)


if __name__ == "__main__":
    main()
