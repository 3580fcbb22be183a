"""Every wiring over real actors: it trains, it says how it went, and it goes on when an actor is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import alive, until
from toy_algorithms import ENTRIES, SMALL

import parl_lite
from parl_lite.agent import Agent
from parl_lite.agents.training import plan_of, spaces_of_env
from parl_lite.agents.wirings.wiring import LocalLearner, Wiring


@pytest.fixture(autouse=True, scope="module")
def preloaded(nothing_left: Path) -> Iterator[None]:
    """Jobs share torch here: there are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARL_LITE_PRELOAD")
        yield


def wiring_of(name: str, **settings: Any) -> Wiring:
    """Return a wiring of the toy algorithm."""
    entry = ENTRIES[name]
    made = entry.settings(**SMALL, **settings)
    spaces = spaces_of_env(made)
    agent = Agent(entry.algorithm(entry.make_model(made, spaces), made))
    return entry.wiring(plan_of(entry, made, spaces), LocalLearner(agent))


def kill_one(pool: parl_lite.ActorPool) -> None:
    """Kill an actor and wait until its process is gone."""
    pid = int(pool.actors[0]._parl_link.address.label.split()[-1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 30, f"process {pid} is gone")


@pytest.mark.parametrize("name", ENTRIES)
def test_a_wiring_trains_and_goes_on_when_an_actor_is_killed(cluster, name):
    with wiring_of(name) as wiring:
        updates = [wiring.update() for _ in range(5)]
        pool = wiring.stream.pool if name == "trajectories" else wiring.pool
        kill_one(pool)
        while not wiring.n_lost or len(pool) < 2:
            updates.append(wiring.update())
        updates += [wiring.update() for _ in range(5)]
        assert wiring.version == len(updates) == wiring.learner.agent.alg.n_updates
        assert wiring.n_lost == 1
    n_steps = 8 * 2 * (1 if name == "gradients" else 2)  # an autoreset row is no step
    assert all(n_steps / 2 < update.env_steps <= n_steps for update in updates)
    assert all(update.lag >= 0 and "loss" in update.metrics for update in updates)
    assert min(update.lag for update in updates[-5:]) <= 4  # not all: an actor that waits for a CPU falls behind
    assert all(update.learner_waited > 0 and update.actor_seconds >= update.actor_waited >= 0 for update in updates)
    assert sum(len(update.episode_returns) for update in updates) > 0


def test_in_step_the_lag_is_zero(cluster):
    with wiring_of("in_step") as wiring:
        assert {wiring.update().lag for _ in range(5)} == {0.0}


def test_batches_can_be_made_ready_while_the_learner_learns(cluster):
    with wiring_of("trajectories", prefetch=2) as wiring:
        updates = [wiring.update() for _ in range(10)]
        assert wiring.n_lost == 0
    assert min(update.lag for update in updates[5:]) <= 6


def test_a_lost_policy_server_is_made_anew_with_the_weights(cluster):
    with wiring_of("central") as wiring:
        wiring.update()
        kill_one(wiring.servers)
        updates = [wiring.update() for _ in range(5)]
        assert wiring.n_lost == 1
    assert min(update.lag for update in updates) <= 4


@pytest.mark.slow
def test_two_policy_servers_share_the_actors(cluster):
    with wiring_of("central", n_policies=2) as wiring:
        for _ in range(3):
            wiring.update()
        assert len(wiring.servers) == 2


@pytest.mark.parametrize("name", ["central", "in_step"])
def test_recurrent_policies_act_as_they_learn(cluster, name):
    with wiring_of(name, lstm_size=4) as wiring:
        assert all("loss" in wiring.update().metrics for _ in range(3))
