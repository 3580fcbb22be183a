"""SAC for discrete actions, whose expectations are sums. Knows nothing of buffers, environments, clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from parl_lite.model import Model

from .acting import SoftPolicy
from .bounds import Count, CountOrZero, Fraction, NotNegative
from .continuous_learner import Batch, squared_errors
from .distributions import Categorical
from .encoders import Trunk
from .q_networks import QNetwork
from .registry import DISCRETE_ACTIONS, Entry
from .sac import SAC, SACLearning
from .settings import ReplaySettings
from .spaces import Spaces
from .targets import descend
from .value_math import of_action
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class DiscreteSACLearning(SACLearning):
    """SAC for discrete actions."""

    target_entropy_share: Fraction = 0.5
    """Entropy to keep where target_entropy is not given, as a share of the largest there is, log(n_actions)."""


class DiscreteSAC(SAC):
    """Soft actor-critic for A actions (Christodoulou 2019, arXiv:1910.07207).

    As SAC, with sums over all actions where that draws one: V(s) = sum_a pi(a|s) (min_i Q_i(s, a) - alpha log pi(a|s)).

    Args:
        model: `policy(obs)` -> logits (N, A), `value(obs)` -> (2, N, A), `get_actor_params()`, `get_critic_params()`.
        settings: how it learns.
    """

    settings: DiscreteSACLearning

    def predict(self, obs: Any) -> Tensor:
        """Return the likeliest actions (B,) int64."""
        return Categorical(self.model.policy(obs)).mode()

    def sample(self, obs: Any) -> Tensor:
        """Return actions (B,) int64 drawn from the policy."""
        return Categorical(self.model.policy(obs)).sample()

    def _critic_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        values = self.model.value(batch["obs"])  # (2, N, A)
        q = of_action(values, batch["action"].expand(len(values), -1))
        return squared_errors(q, self._target(batch))

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        value = self._soft_value(self.target.value(batch["next_obs"]), self.model.policy(batch["next_obs"]))
        target: Tensor = batch["reward"] + batch["discount"] * value
        return target

    def _learn_actor(self, batch: Batch) -> dict[str, Any]:
        logits = self.model.policy(batch["obs"])
        with torch.no_grad():
            values = self.model.value(batch["obs"])
        loss = -self._soft_value(values, logits).mean()
        descend(self.actor_optimizer, loss, self.settings.max_grad_norm)
        entropy = Categorical(logits.detach()).entropy()
        if self.settings.automatic_temperature:
            self._learn_temperature(-entropy, self._target_entropy(logits.shape[-1]))
        return {"actor_loss": loss.item(), "entropy": entropy.mean().item(), "temperature": self.temperature}

    def _soft_value(self, values: Tensor, logits: Tensor) -> Tensor:
        """Return V(s) (N,) of values (2, N, A) and the policy's logits (N, A)."""
        log_probs = torch.log_softmax(logits, dim=-1)
        soft = values.amin(dim=0) - self.log_temperature.exp().detach() * log_probs
        return (log_probs.exp() * soft).sum(dim=-1)

    def _target_entropy(self, n: int) -> float:
        given = self.settings.target_entropy
        return self.settings.target_entropy_share * torch.tensor(float(n)).log().item() if given is None else given


class DiscreteActorCritic(Model):
    """A policy and two critics, each with an encoder of its own.

    Args:
        make_encoder: makes an encoder; called three times.
        n_actions: A.
        head: as in `q_networks.Head`.
    """

    def __init__(self, make_encoder: Callable[[], Any], n_actions: int, **head: Any) -> None:
        super().__init__()
        self.n_actions = n_actions
        self.actor = QNetwork(make_encoder(), n_actions, **head)
        self.critics = nn.ModuleList(QNetwork(make_encoder(), n_actions, **head) for _ in range(2))

    def policy(self, obs: Any) -> Tensor:
        """Return logits (N, A)."""
        logits: Tensor = self.actor(obs)
        return logits

    def value(self, obs: Any) -> Tensor:
        """Return the values (2, N, A) of all actions by both critics."""
        return torch.stack([critic(obs) for critic in self.critics])

    def get_actor_params(self) -> list[nn.Parameter]:
        """Return the parameters of the policy alone."""
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        """Return the parameters of the critics alone."""
        return list(self.critics.parameters())


def network(settings: DiscreteSACLearning, make_encoder: Callable[[], Any], n_actions: int) -> DiscreteActorCritic:
    """Return the networks that `settings` describe over encoders, of which three are made."""
    return DiscreteActorCritic(make_encoder, n_actions)


@dataclass(frozen=True, kw_only=True)
class DiscreteSACSettings(DiscreteSACLearning, ReplaySettings):
    """SAC for discrete actions."""

    batch_size: Count = 64
    """Transitions in one update."""
    random_steps: CountOrZero = 1_000
    """Steps at the start of the run whose actions are drawn uniformly."""
    samples_per_insert: NotNegative = 16.0
    """How often a transition is learned from on average; 0: as often as learner and actors are fast."""


def make_model(settings: DiscreteSACSettings, spaces: Spaces) -> DiscreteActorCritic:
    """Return actor and critics for an environment's spaces."""
    return network(settings, partial(Trunk, spaces.obs, settings), spaces.n_actions)


ENTRY = Entry(
    name="sac_discrete",
    settings=DiscreteSACSettings,
    algorithm=DiscreteSAC,
    wiring=Replay,
    make_model=make_model,
    make_policy=SoftPolicy,
    actions=DISCRETE_ACTIONS,
)
