"""Ape-X with 8 actors against DQN in one process, on an environment whose step takes 5 ms: environment steps a second of both.

python tests/benchmarks/apex.py [--seconds S]     prints a table and one JSON line

The environment waits as a simulator does that runs elsewhere, so it costs no processor; hiding such waits is what actors are for.
The floor is what one process can do at most: one step for each wait. Both have the same network and learn from each transition 8
times: DQN in batches of 32, an update every 4 steps, Ape-X in batches of 256, since large ones are what a learner apart is for.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from typing import Any

import click
import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

import parl_lite
from parl_lite.agent import Agent
from parl_lite.agents import registry
from parl_lite.agents.settings import ReplaySettings
from parl_lite.agents.training import n_slots, plan_of, spaces_of_env
from parl_lite.agents.wirings.wiring import LocalLearner

N_ACTORS = 8
COMMON: dict[str, Any] = {
    "env": "apex:Slow",
    "hidden_size": 64,
    "learning_starts": 1_000,
    "head_size": 0,
    "samples_per_insert": 8.0,
}


class Slow(gymnasium.Env[Any, Any]):
    """Random observations of four numbers, episodes of 100 steps; a step takes 5 ms."""

    observation_space = Box(-1, 1, (4,), np.float32)
    action_space = Discrete(2)
    wait = 0.005

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.wait)
        self.count += 1
        return self._obs(), 1.0, self.count == 100, False, {}

    def _obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


def steps_per_second(name: str, seconds: float, **settings: Any) -> dict[str, float]:
    """Return environment steps and updates a second, from the first update on."""
    entry = registry.load(name)
    made: ReplaySettings = entry.settings(**{**COMMON, **settings})
    spaces = spaces_of_env(made)
    if n_slots(entry, made):
        parl_lite.connect(n_cpu=n_slots(entry, made))
    try:
        agent = Agent(entry.algorithm(entry.make_model(made, spaces), made))
        with tempfile.TemporaryDirectory() as folder:
            plan = replace(plan_of(entry, made, spaces), folder=folder)
            with entry.wiring(plan, LocalLearner(agent)) as wiring:
                return _measured(wiring, seconds)
    finally:
        parl_lite.disconnect()


def _measured(wiring: Any, seconds: float) -> dict[str, float]:
    while wiring.version < 10:
        wiring.update()
    n_steps, n_updates, start = 0, 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        update = wiring.update()
        n_steps += update.env_steps
        n_updates += update.n_updates
    passed = time.perf_counter() - start
    return {"steps_per_second": n_steps / passed, "updates_per_second": n_updates / passed}


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="How long each of them is measured.")
def main(seconds: float) -> None:
    """Measure both, and print them."""
    torch.set_num_threads(1)
    dqn = steps_per_second("dqn", seconds)
    apex = steps_per_second("apex", seconds, n_actors=N_ACTORS, unroll_length=20, batch_size=256)
    floor = 1 / Slow.wait
    click.echo(f"{'':28}{'env steps/s':>14}{'updates/s':>12}")
    click.echo(f"{'floor: one process, no work':28}{floor:>14.0f}")
    for label, figures in (("DQN, one process", dqn), (f"Ape-X, {N_ACTORS} actors, 1 shard", apex)):
        click.echo(f"{label:28}{figures['steps_per_second']:>14.0f}{figures['updates_per_second']:>12.0f}")
    ratio = apex["steps_per_second"] / dqn["steps_per_second"]
    click.echo(f"Ape-X makes {ratio:.1f} x the steps of DQN (goal: 3)")
    click.echo(json.dumps({"floor": floor, "dqn": dqn, "apex": apex, "ratio": round(ratio, 2), "holds": ratio >= 3}))


if __name__ == "__main__":
    main()
