"""Learners on two machines and their coordinator on a third find each other, and are in step."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from daemons import StandingCluster
from hosts import Console, Network, why_impossible

from parl_lite.security import ClusterKey

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "possible here"),
]

SCRIPT = """
import numpy as np
import torch
import parl_lite
from parl_lite.agent import Agent
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.training import plan_of, spaces_of_env
from parl_lite.agents.wirings.learners import LearnerGroup
from toy_algorithms import IN_STEP, SMALL

def learn():
    settings = IN_STEP.settings(**SMALL)
    plan = plan_of(IN_STEP, settings, spaces_of_env(settings))
    agent = Agent(plan.make_algorithm(plan.make_model(plan.spaces)))
    worker = RolloutWorker(plan.make_envs, plan.make_model, unroll_length=8, seed=1, rank=0)
    worker.set_weights(0, agent.get_weights())
    group = LearnerGroup(plan, agent, 2)
    for _ in range(3):
        group.learn(group.prepare([worker.sample(), worker.sample()]))
    states = [learner.state() for learner in group.pool.actors]
    same = all(torch.equal(states[0]["model"][name], states[1]["model"][name]) for name in states[0]["model"])
    hosts = sorted(learner._parl_link.address.label.split()[-2] for learner in group.pool.actors)
    found = [group._host, same, states[0]["n_updates"], hosts]
    group.close()
    return found
"""


def test_learners_on_two_machines_are_in_step(nothing_left: Path):
    network = Network(["alpha", "beta", "gamma"], nothing_left)
    alpha, beta, gamma = network.hosts.values()
    cluster = StandingCluster(ClusterKey.new(), f"{alpha.address}:8010")
    console = None
    try:
        cluster.start_master(alpha.surroundings())
        cluster.start_worker(1, alpha.surroundings())
        cluster.start_worker(1, beta.surroundings(), ["--advertise", beta.address])
        project = gamma.folder / "project"
        project.mkdir()
        shutil.copy(Path(__file__).with_name("toy_algorithms.py"), project)
        (project / "main.py").write_text(SCRIPT)
        cluster.key.write(project / "key")
        console = Console(gamma, project / "main.py", {"PARL_LITE_KEY_FILE": str(project / "key")})
        console(f"parl_lite.connect({cluster.address!r}, log_to_driver=False)")
        host, same, n_updates, hosts = console("learn()")
        assert (host, same, n_updates, hosts) == (gamma.address, True, 3, ["alpha", "beta"])
        assert console.close() == 0
    finally:
        if console is not None:
            console.kill()
        cluster.end()
        network.close()
