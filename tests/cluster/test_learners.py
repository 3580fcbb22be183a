"""Several learners: the same weights everywhere, as if one had learned; uneven shares; lost and new ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import alive, until
from toy_algorithms import IN_STEP, SMALL

from parl_lite.agent import Agent
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.training import plan_of, spaces_of_env
from parl_lite.agents.wirings.learners import LearnerGroup
from parl_lite.agents.wirings.wiring import LocalLearner, Plan

SETTINGS = IN_STEP.settings(**SMALL)


@pytest.fixture(autouse=True, scope="module")
def preloaded(nothing_left: Path) -> Iterator[None]:
    """Jobs share torch here: there are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARL_LITE_PRELOAD")
        yield


@pytest.fixture
def plan() -> Plan:
    return plan_of(IN_STEP, SETTINGS, spaces_of_env(SETTINGS))


def new_agent(plan: Plan) -> Agent:
    torch.manual_seed(3)
    return Agent(plan.make_algorithm(plan.make_model(plan.spaces)))


def rollouts_of(plan: Plan, n: int) -> list[dict[str, Any]]:
    """Return rollouts whose rows are all valid, so that means of means are means."""
    found = []
    for rank in range(n):
        worker = RolloutWorker(plan.make_envs, plan.make_model, unroll_length=8, seed=1, rank=rank)
        worker.set_weights(0, new_agent(plan).get_weights())
        found.append(worker.sample())
        found[-1]["valid"][:] = True
    return found


def kill(actor: Any) -> None:
    """Kill a learner and wait until its process is gone."""
    pid = int(actor._parl_link.address.label.split()[-1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 30, f"process {pid} is gone")


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], **how: float) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], err_msg=name, **how)


def test_two_learners_do_what_one_would_do_with_all_rollouts(cluster, plan):
    rollouts, one = rollouts_of(plan, 2), LocalLearner(new_agent(plan))
    group = LearnerGroup(plan, new_agent(plan), 2)
    for _ in range(3):
        assert group.learn(group.prepare(rollouts))["loss"] == pytest.approx(one.learn(one.prepare(rollouts))["loss"], rel=1e-4)
        assert_same(group.get_weights(), one.get_weights(), rtol=1e-4, atol=1e-6)
    weights = [actor.state()["model"] for actor in group.pool.actors]
    assert_same(*({name: value.numpy() for name, value in each.items()} for each in weights), rtol=0)
    group.synchronize()
    assert_same(group.agent.get_weights(), group.get_weights(), rtol=0)
    assert group.agent.alg.n_updates == 3
    assert group.agent.alg.env_steps == group.env_steps == 3 * 2 * 8 * 2
    group.close()


@pytest.mark.parametrize("n_rollouts", [1, 3])
def test_shares_of_different_sizes_do_not_hang(cluster, plan, n_rollouts):
    group = LearnerGroup(plan, new_agent(plan), 2)
    rollouts = rollouts_of(plan, n_rollouts)
    for _ in range(2):
        assert "loss" in group.learn(group.prepare(rollouts))
    states = [actor.state()["model"] for actor in group.pool.actors]
    assert_same(*({name: value.numpy() for name, value in each.items()} for each in states), rtol=0)
    group.close()


def test_a_lost_learner_is_survived_and_one_that_takes_its_place_has_the_state(cluster, plan):
    group, rollouts = LearnerGroup(plan, new_agent(plan), 2), rollouts_of(plan, 2)
    group.learn(group.prepare(rollouts))
    kill(group.pool.actors[0])
    group.learn(group.prepare(rollouts))
    while len(group.pool) < 2:
        group.learn(group.prepare(rollouts))
    group.learn(group.prepare(rollouts))
    assert group.n_lost == 1
    states = [actor.state() for actor in group.pool.actors]
    assert states[0]["n_updates"] == states[1]["n_updates"] > 2
    assert_same(*({name: value.numpy() for name, value in each["model"].items()} for each in states), rtol=0)
    group.close()


@pytest.mark.slow
def test_when_all_learners_are_lost_they_begin_with_the_last_state_that_was_fetched(cluster, plan):
    group, rollouts = LearnerGroup(plan, new_agent(plan), 2), rollouts_of(plan, 2)
    group.learn(group.prepare(rollouts))
    group.synchronize()
    for actor in group.pool.actors:
        kill(actor)
    group.learn(group.prepare(rollouts))
    group.synchronize()
    assert group.agent.alg.n_updates == 2
    group.close()
