"""C51: learns the distribution of returns on fixed atoms. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acting import StepPolicy
from .bounds import Count, Positive
from .encoders import Trunk
from .q_networks import CategoricalQNetwork
from .registry import DISCRETE_ACTIONS, Entry
from .settings import ReplaySettings
from .spaces import Spaces
from .tuned import CATEGORICAL, DISCRETE, tuned
from .value_learner import Batch, TransitionLearner, ValueLearning
from .value_math import categorical_cross_entropy, of_action, project_categorical
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class C51Learning(ValueLearning):
    """C51 with the paper's Adam; the range belongs to the rewards of the environment."""

    adam_epsilon: Positive = 0.01 / 32
    """Added to the root of Adam's second moment: large values damp small gradients."""
    n_atoms: Count = 51
    """Returns that the distribution is over, equally spaced."""
    value_low: float = -10.0
    """The lowest of them: no return should be below."""
    value_high: float = 10.0
    """The highest of them: no return should be above."""
    double: bool = False
    """The learning network chooses the action whose distribution is bootstrapped."""


class C51(TransitionLearner):
    """Categorical distributional Q-learning (Bellemare, Dabney & Munos 2017, arXiv:1707.06887).

    One step of Adam on the mean cross entropy of p(s, a) from the target's distribution, that of R + gamma^n z for the
    atoms z with the target network's p'(s', a*), projected onto the atoms; a* has the largest expected return. The cross entropy
    less the target's entropy, the KL divergence, is the priority.

    Args:
        model: `log_probs(obs)` -> (N, A, K), `support` (K,) and `model(obs)` -> expected returns (N, A).
        settings: how it learns.
    """

    settings: C51Learning

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        log_probs = of_action(self.model.log_probs(batch["obs"]), batch["action"])  # (N, K)
        target = self._target(batch)  # (N, K)
        loss = categorical_cross_entropy(log_probs, target)
        entropy = -torch.special.xlogy(target, target).sum(dim=-1)
        return loss, (loss.detach() - entropy).clamp(min=0)

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        support = self.target.support
        probs = self.target.log_probs(batch["next_obs"]).exp()  # (N, A, K)
        next_q = self.model(batch["next_obs"]) if self.settings.double else probs @ support  # (N, A)
        position = batch["reward"].unsqueeze(-1) + batch["discount"].unsqueeze(-1) * support  # (N, K)
        return project_categorical(position, of_action(probs, next_q.argmax(dim=-1)), support)


def network(settings: C51Learning, encoder: Any, n_actions: int) -> CategoricalQNetwork:
    """Return the network that `settings` describe over an encoder."""
    span = (settings.value_low, settings.value_high, settings.n_atoms)
    return CategoricalQNetwork(encoder, n_actions, *span, **settings.head())


@dataclass(frozen=True, kw_only=True)
class C51Settings(C51Learning, ReplaySettings):
    """C51."""


def make_model(settings: C51Settings, spaces: Spaces) -> CategoricalQNetwork:
    """Return the network for an environment's spaces."""
    return network(settings, Trunk(spaces.obs, settings), spaces.n_actions)


RANGES = {
    "CartPole-v1": {"value_low": 0.0, "value_high": 100.0},
    "Acrobot-v1": {"value_low": -100.0, "value_high": 0.0},
    "LunarLander-v3": {"value_low": -300.0, "value_high": 300.0},
    "MinAtar/*": {"value_low": 0.0, "value_high": 50.0},
}
"""Ranges of returns, by environment."""

ENTRY = Entry(
    name="c51",
    settings=C51Settings,
    algorithm=C51,
    wiring=Replay,
    make_model=make_model,
    make_policy=StepPolicy,
    actions=DISCRETE_ACTIONS,
    tuned=tuned(DISCRETE, CATEGORICAL, RANGES),
)
