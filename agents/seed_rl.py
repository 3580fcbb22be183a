"""SEED RL: V-trace on rollouts whose actions one process chose for all actors. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import Count, Positive
from .impala import ATARI, CARTPOLE, IMPALA, VTraceLearning
from .models import actor_critic
from .registry import Entry
from .settings import CentralSettings
from .wirings.central import Central


@dataclass(frozen=True, kw_only=True)
class SeedRLSettings(VTraceLearning, CentralSettings):
    """SEED RL."""

    envs_per_actor: Count = 8
    adam_epsilon: Positive = 3.125e-7
    calls_in_flight: Count = 1


class SeedRL(IMPALA):
    """SEED RL, scalable and efficient deep RL with central inference (Espeholt et al. 2020, https://arxiv.org/abs/1910.06591).

    The actors have no weights: they ask for each action, and get that of the newest policy. So the policy may change
    within a rollout. Each step has the parameters of the policy mu that chose it, and V-trace corrects step by step,

        rho = min(rho_bar, pi(a|s) / mu(a|s))

    with the loss and the optimiser of `impala.py`: the mean, and Adam with beta1 = 0 and epsilon = 3.125e-7.

    Args:
        model: as for IMPALA.
        settings: only those about learning are read.
    """


ENTRY = Entry(
    name="seed_rl",
    settings=SeedRLSettings,
    algorithm=SeedRL,
    wiring=Central,
    make_model=actor_critic,
    tuned={"CartPole-v1": CARTPOLE, "ALE/*": {**ATARI, "n_actors": 4}},
)
