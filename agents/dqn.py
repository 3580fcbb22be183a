"""DQN: Q-learning with a network, a replay buffer and a target network. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import StepPolicy
from .bounds import NotNegative
from .encoders import Trunk
from .q_networks import QNetwork
from .registry import DISCRETE_ACTIONS, Entry
from .settings import ReplaySettings
from .spaces import Spaces
from .tuned import DISCRETE, SQUARED, tuned
from .value_learner import Batch, TransitionLearner, ValueLearning
from .value_math import huber, of_action
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class DQNLearning(ValueLearning):
    """DQN as in Nature, with Adam; each later improvement is a switch."""

    double: bool = False
    """The learning network chooses the action whose value is bootstrapped, the target network says the value."""
    huber_delta: NotNegative = 1.0
    """The loss is squared up to this error and linear beyond; 0: squared everywhere."""


class DQN(TransitionLearner):
    """Deep Q-learning (Mnih et al. 2015); double is of van Hasselt et al. 2016 (arXiv:1509.06461).

    One step of Adam on the mean of huber(target - Q(s, a)) with

        target = R + gamma^n Q'(s', argmax Q'(s', .))      Q' the target network; double: argmax Q(s', .)

    Args:
        model: `model(obs)` -> Q values (N, A).
        settings: how it learns.
    """

    settings: DQNLearning

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        q = of_action(self.model(batch["obs"]), batch["action"])  # (N,)
        error = self._target(batch) - q
        return huber(error, self.settings.huber_delta), error.detach().abs()

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        next_q = self.target(batch["next_obs"])  # (N, A)
        chooser = self.model(batch["next_obs"]) if self.settings.double else next_q
        return batch["reward"] + batch["discount"] * of_action(next_q, chooser.argmax(dim=-1))


def network(settings: DQNLearning, encoder: Any, n_actions: int) -> QNetwork:
    """Return the network that `settings` describe over an encoder."""
    return QNetwork(encoder, n_actions, **settings.head())


@dataclass(frozen=True, kw_only=True)
class DQNSettings(DQNLearning, ReplaySettings):
    """DQN."""


def make_model(settings: DQNSettings, spaces: Spaces) -> QNetwork:
    """Return the network for an environment's spaces."""
    return network(settings, Trunk(spaces.obs, settings), spaces.n_actions)


ENTRY = Entry(
    name="dqn",
    settings=DQNSettings,
    algorithm=DQN,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=tuned(DISCRETE, SQUARED),
)
