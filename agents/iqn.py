"""IQN: learns returns at any quantile, drawn anew for each update. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import StepPolicy
from .bounds import Count, NotNegative, Positive
from .encoders import Trunk
from .q_networks import ImplicitQuantileNetwork
from .registry import DISCRETE_ACTIONS, Entry
from .settings import ReplaySettings
from .spaces import Spaces
from .tuned import DISCRETE
from .value_learner import Batch, TransitionLearner, ValueLearning
from .value_math import of_action, quantile_huber
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class IQNLearning(ValueLearning):
    """IQN with the paper's Adam."""

    learning_rate: Positive = 5e-5
    """Learning rate of Adam, for the mean loss."""
    adam_epsilon: Positive = 0.01 / 32
    """Added to the root of Adam's second moment: large values damp small gradients."""
    n_fractions: Count = 64
    """Quantiles drawn for the prediction."""
    n_target_fractions: Count = 64
    """Quantiles drawn for the target."""
    n_acting_fractions: Count = 32
    """Quantiles, evenly spread, whose mean is the value an action is chosen by."""
    n_cosines: Count = 64
    """Cosines that a fraction is embedded by."""
    kappa: NotNegative = 1.0
    """The loss is squared up to this error and linear beyond; 0: linear everywhere."""
    double: bool = False
    """The learning network chooses the action whose quantiles are bootstrapped."""


class IQN(TransitionLearner):
    """Implicit quantile networks (Dabney et al. 2018, arXiv:1806.06923).

    As QR-DQN, but the fractions tau of the prediction Z(s, a, tau) and tau' of the target R + gamma^n Z'(s', a*, tau') are drawn
    uniformly from [0, 1] for each transition. The loss is the priority.

    Args:
        model: `quantiles(obs, fractions (N, M))` -> (N, A, M) and `model(obs)` -> means (N, A).
        settings: how it learns.
    """

    settings: IQNLearning

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        fractions = self._draw(batch, self.settings.n_fractions)
        quantiles = of_action(self.model.quantiles(batch["obs"], fractions), batch["action"])  # (N, M)
        loss = quantile_huber(quantiles, fractions, self._target(batch), self.settings.kappa)
        return loss, loss.detach()

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        fractions = self._draw(batch, self.settings.n_target_fractions)
        chooser = self.model if self.settings.double else self.target
        quantiles = of_action(self.target.quantiles(batch["next_obs"], fractions), chooser(batch["next_obs"]).argmax(dim=-1))
        return batch["reward"].unsqueeze(-1) + batch["discount"].unsqueeze(-1) * quantiles

    def _draw(self, batch: Batch, n: int) -> Tensor:
        reward: Tensor = batch["reward"]
        return torch.rand(len(reward), n, device=reward.device)


def network(settings: IQNLearning, encoder: Any, n_actions: int) -> ImplicitQuantileNetwork:
    """Return the network that `settings` describe over an encoder."""
    return ImplicitQuantileNetwork(encoder, n_actions, settings.n_cosines, settings.n_acting_fractions, **settings.head())


@dataclass(frozen=True, kw_only=True)
class IQNSettings(IQNLearning, ReplaySettings):
    """IQN."""


def make_model(settings: IQNSettings, spaces: Spaces) -> ImplicitQuantileNetwork:
    """Return the network for an environment's spaces."""
    return network(settings, Trunk(spaces.obs, settings), spaces.n_actions)


ENTRY = Entry(
    name="iqn",
    settings=IQNSettings,
    algorithm=IQN,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=DISCRETE,
)
