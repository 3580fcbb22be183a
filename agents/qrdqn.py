"""QR-DQN: learns returns at fixed quantiles. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import StepPolicy
from .bounds import Count, NotNegative, Positive
from .encoders import Trunk
from .q_networks import QuantileQNetwork
from .registry import DISCRETE_ACTIONS, Entry
from .settings import ReplaySettings
from .spaces import Spaces
from .tuned import DISCRETE
from .value_learner import Batch, TransitionLearner, ValueLearning
from .value_math import of_action, quantile_huber
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class QRDQNLearning(ValueLearning):
    """QR-DQN with the paper's Adam."""

    learning_rate: Positive = 5e-5
    """Learning rate of Adam, for the mean loss."""
    adam_epsilon: Positive = 0.01 / 32
    """Added to the root of Adam's second moment: large values damp small gradients."""
    n_quantiles: Count = 200
    """Quantiles of the return, in the middles of as many equal parts."""
    kappa: NotNegative = 1.0
    """The loss is squared up to this error and linear beyond; 0: linear everywhere."""
    double: bool = False
    """The learning network chooses the action whose quantiles are bootstrapped."""


class QRDQN(TransitionLearner):
    """Quantile regression DQN (Dabney et al. 2018, arXiv:1710.10044).

    One step of Adam on the mean over transitions of the quantile Huber loss between the quantiles theta(s, a) and the targets
    R + gamma^n theta'(s', a*), every one with every other; theta' is the target network's, a* has the largest mean. The loss is
    the priority.

    Args:
        model: `quantiles(obs)` -> (N, A, M), their `fractions` (M,), and `model(obs)` -> means (N, A).
        settings: how it learns.
    """

    settings: QRDQNLearning

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        quantiles = of_action(self.model.quantiles(batch["obs"]), batch["action"])  # (N, M)
        loss = quantile_huber(quantiles, self.model.fractions, self._target(batch), self.settings.kappa)
        return loss, loss.detach()

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        quantiles = self.target.quantiles(batch["next_obs"])  # (N, A, M)
        next_q = self.model(batch["next_obs"]) if self.settings.double else quantiles.mean(dim=-1)
        best = of_action(quantiles, next_q.argmax(dim=-1))  # (N, M)
        return batch["reward"].unsqueeze(-1) + batch["discount"].unsqueeze(-1) * best


def network(settings: QRDQNLearning, encoder: Any, n_actions: int) -> QuantileQNetwork:
    """Return the network that `settings` describe over an encoder."""
    return QuantileQNetwork(encoder, n_actions, settings.n_quantiles, **settings.head())


@dataclass(frozen=True, kw_only=True)
class QRDQNSettings(QRDQNLearning, ReplaySettings):
    """QRDQN."""


def make_model(settings: QRDQNSettings, spaces: Spaces) -> QuantileQNetwork:
    """Return the network for an environment's spaces."""
    return network(settings, Trunk(spaces.obs, settings), spaces.n_actions)


ENTRY = Entry(
    name="qrdqn",
    settings=QRDQNSettings,
    algorithm=QRDQN,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=DISCRETE,
)
