"""Training: steps a second with the learner at work, where the time goes, and what memory it takes, beside Stable-Baselines3.

python tests/benchmarks/train.py [--peer sb3] [--seconds S] [--rounds N] [--only TASK] [--set NAME=VALUE ...]
                                                                              prints tables and one JSON line

Same environment, same network, one pass of the learner over each step, on both sides: CartPole-v1 with an MLP of 2 x 64, Pong
with the Nature network at 84 x 84 and at 42 x 42 pixels. Ours is IMPALA on a private cluster, SB3's is PPO with one epoch;
its own script, `train_sb3.py`, runs in --peer-python, or in an environment that is made for it and thrown away.

The parts are processor time for a step, in all processes that do the part: stepping (the environments), acting (the network,
drawing), transport (the rest of the actors: columns, sending; the rest of the learner: receiving, joining, weights), and
learning. Processors over the sum, those of the cluster's own processes included, is what could be reached if nobody ever
waited: unlike the rate itself, it says the same on a machine with other work. Memory is the proportional set size of all
processes together: pages that several share count once.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from footprint import WARM_UP, memory_mb, processor_seconds

import parl_lite
from parl_lite.agents.wirings import trajectories
from parl_lite.agents.wirings.actors import Actor, actor_pool

HERE = Path(__file__).parent
PONG = {"env": "ALE/Pong-v5", "network": "nature", "clip_reward": True, "unroll_length": 20}
TASKS: dict[str, dict[str, Any]] = {
    "cartpole": {"env": "CartPole-v1", "n_actors": 2, "envs_per_actor": 16, "unroll_length": 32},
    "pong84": {**PONG, "frame_size": 84, "n_actors": 2, "envs_per_actor": 16},
    "pong42": {**PONG, "frame_size": 42, "n_actors": 2, "envs_per_actor": 16},
}
N_PROCESSORS = len(os.sched_getaffinity(0))


class Clocked:
    """Calls a function and adds up the processor time it takes."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        begin = time.process_time()
        result = self.function(*args)
        self.seconds += time.process_time() - begin
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


@parl_lite.remote_class
class ClockedActor(Actor):
    """An actor that knows what its parts cost."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stepping, self.acting = Clocked(self.collector.envs.step), Clocked(self.collector.policy)
        self.collector.envs.step = self.stepping
        self.collector.policy = self.acting

    def processor_times(self, _: None) -> dict[str, float]:
        """Return seconds since the beginning."""
        return {"all": time.process_time(), "stepping": self.stepping.seconds, "acting": self.acting.seconds}


class Ours:
    """A run of IMPALA that is stepped from here."""

    def __init__(self, settings: Any) -> None:
        from parl_lite.agent import Agent
        from parl_lite.agents.impala import ENTRY
        from parl_lite.agents.training import plan_of, spaces_of_env
        from parl_lite.agents.wirings.wiring import LocalLearner

        spaces = spaces_of_env(settings)
        agent = Agent(ENTRY.algorithm(ENTRY.make_model(settings, spaces), settings))
        self.learn = agent.learn = Clocked(agent.learn)
        self.wiring: Any = trajectories.Trajectories(plan_of(ENTRY, settings, spaces), LocalLearner(agent))

    def run(self, seconds: float) -> dict[str, float]:
        """Learn so long; return figures."""
        self._learn_for(WARM_UP)
        before = self._processor_times()
        updates, passed = self._learn_for(seconds)
        spent = {name: after - before[name] for name, after in self._processor_times().items()}
        n_steps = sum(update.env_steps for update in updates)
        parts = {
            "stepping": spent["stepping"],
            "acting": spent["acting"],
            "transport": spent["actors"] - spent["stepping"] - spent["acting"] + spent["learner"] - spent["learning"],
            "learning": spent["learning"],
        }
        return {
            "steps_per_second": n_steps / passed,
            **{f"{name}_us": 1e6 * part / n_steps for name, part in parts.items()},
            "processor_us": 1e6 * spent["everything"] / n_steps,
            "learner_waited_share": sum(update.learner_waited for update in updates) / passed,
            "actor_waited_share": sum(update.actor_waited for update in updates)
            / sum(update.actor_seconds for update in updates),
            "policy_lag": statistics.mean(update.lag for update in updates),
            "memory_mb": memory_mb(os.getpid()),
        }

    def _learn_for(self, seconds: float) -> tuple[list[Any], float]:
        begin = time.perf_counter()
        updates = []
        while time.perf_counter() - begin < seconds:
            updates.append(self.wiring.update())
        return updates, time.perf_counter() - begin

    def _processor_times(self) -> dict[str, float]:
        pool = self.wiring.stream.pool
        actors = [actor.processor_times(None) for actor in pool.actors]
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "actors": sum(each["all"] for each in actors),
            "stepping": sum(each["stepping"] for each in actors),
            "acting": sum(each["acting"] for each in actors),
            "learner": used.ru_utime + used.ru_stime,
            "learning": self.learn.seconds,
            "everything": processor_seconds(os.getpid()),
        }


def ours(task: str, seconds: float, given: dict[str, Any]) -> dict[str, float]:
    """Return figures of a run of IMPALA."""
    import torch

    from parl_lite.agents.impala import ImpalaSettings

    settings = ImpalaSettings(**{**TASKS[task], "total_steps": 10**9, **given})
    torch.set_num_threads(settings.n_threads)
    trajectories.actor_pool = lambda plan: actor_pool(plan, ClockedActor)  # type: ignore[attr-defined]
    parl_lite.connect(n_cpu=settings.n_actors)
    try:
        run = Ours(settings)
        with run.wiring:
            return run.run(seconds)
    finally:
        parl_lite.disconnect()


def peer(python: str, task: str, seconds: float) -> dict[str, float]:
    """Return figures of a run of SB3."""
    command = [python, str(HERE / "train_sb3.py"), task, "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@contextmanager
def peer_environment(python: str | None) -> Iterator[str]:
    """Yield an interpreter with SB3; without one that is given, an environment is made that sees the packages of this one."""
    if python:
        yield python
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = Path(folder).glob("lib/python*/site-packages")
        (packages / "ours.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        install = ["install", "-q", "--no-deps", "--target", str(packages), "stable-baselines3", "opencv-python-headless"]
        subprocess.run([sys.executable, "-m", "pip", *install], check=True, stderr=subprocess.DEVNULL)
        yield f"{folder}/bin/python"


def table(task: str, rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Print the medians of all rounds, and return them."""
    medians = {who: {name: statistics.median(each[name] for each in runs) for name in runs[0]} for who, runs in rows.items()}
    print(f"\n{task}")
    for who, figures in medians.items():
        rounds = ", ".join(f"{each['steps_per_second']:,.0f}" for each in rows[who])
        rate = f"{figures['steps_per_second']:8,.0f} steps/s (rounds: {rounds})"
        reach = N_PROCESSORS * 1e6 / figures["processor_us"]
        print(
            f"  {who:5} {rate}   {figures['processor_us']:,.0f} us a step: {reach:,.0f} in reach   {figures['memory_mb']:,.0f} MB"
        )
    figures = medians["ours"]
    parts = "   ".join(f"{name} {figures[f'{name}_us']:.0f}" for name in ("stepping", "acting", "transport", "learning"))
    print(f"  processor time of a step, us: {parts}")
    waits = (
        f"the learner waited {figures['learner_waited_share']:.0%} of the time, the actors {figures['actor_waited_share']:.0%}"
    )
    print(f"  {waits}, policy lag {figures['policy_lag']:.1f} updates")
    if "sb3" in medians:
        theirs = medians["sb3"]
        ratios = figures["steps_per_second"] / theirs["steps_per_second"], theirs["processor_us"] / figures["processor_us"]
        print(f"  ours / sb3: {ratios[0]:.2f} by the rates, {ratios[1]:.2f} by processor time")
    return medians


@click.command()
@click.option("--peer", "with_peer", type=click.Choice(["sb3"]), help="Run it, too, in turn with ours.")
@click.option("--peer-python", help="An interpreter that has it; without, an environment is made.")
@click.option("--seconds", default=20.0, show_default=True, help="Of one measurement.")
@click.option("--rounds", default=3, show_default=True, help="Measurements of each.")
@click.option("--only", type=click.Choice(list(TASKS)), multiple=True, help="These tasks only.")
@click.option("--set", "given", multiple=True, help="A setting of ours, such as n_actors=8.")
def main(
    with_peer: str | None, peer_python: str | None, seconds: float, rounds: int, only: tuple[str, ...], given: tuple[str, ...]
) -> None:
    changed = {name: json.loads(value) for name, _, value in (each.partition("=") for each in given)}
    found = {}
    with peer_environment(peer_python if with_peer else "") as python:
        for task in only or TASKS:
            rows: dict[str, list[dict[str, float]]] = {"ours": [], **({"sb3": []} if with_peer else {})}
            for _ in range(rounds):
                rows["ours"].append(ours(task, seconds, changed))
                if with_peer:
                    rows["sb3"].append(peer(python, task, seconds))
            found[task] = table(task, rows)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
