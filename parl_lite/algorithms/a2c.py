"""A2C: advantage actor-critic with sums as in PARL. Knows tensors and the user's model; nothing of actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept
from parl_lite.algorithms.updates import descend, set_learning_rate
from parl_lite.model import Model

MAX_GRAD_NORM = 40.0
"""The gradient of the sum over the batch is scaled down to this norm, if longer."""


class Losses(NamedTuple):
    """What `learn` returns; scalars, without gradients."""

    total_loss: Tensor
    pi_loss: Tensor
    vf_loss: Tensor
    entropy: Tensor


class A2C(Algorithm):
    """Advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, synchronous).

    One step of Adam on the **sum** over the batch of

        - A log pi(a|s)  +  vf_loss_coeff / 2 (V(s) - target)^2  +  entropy_coeff H(pi(.|s))

    so that learning rates belong to a batch size, and `entropy_coeff` is negative where exploring is wanted.

    Args:
        model: `policy(obs)` -> logits (B, A), `value(obs)` -> (B,); `policy_and_value(obs)` -> both, where it is
            there, saves `sample` and `prob_and_value` the second pass.
            The model stays on the device where it is.
        config: "vf_loss_coeff" and "learning_rate"; further entries are ignored.
    """

    def __init__(self, model: Model, config: Mapping[str, Any]) -> None:
        self.model = accept(model, self, "policy", "value")
        self.vf_loss_coeff = float(config["vf_loss_coeff"])
        self.optimizer = torch.optim.Adam(model.parameters(), lr=float(config["learning_rate"]))

    def learn(
        self,
        obs: Tensor,
        actions: Tensor,
        advantages: Tensor,
        target_values: Tensor,
        lr: float,
        entropy_coeff: float,
    ) -> Losses:
        """Make one step; return (total_loss, pi_loss, vf_loss, entropy), sums over the batch.

        Args:
            obs: (B, ...).
            actions: (B,) integers.
            advantages, target_values: (B,).
            lr: learning rate from now on.
            entropy_coeff: weight of the entropy, usually below zero.
        """
        pi = Categorical(logits=self.model.policy(obs))
        pi_loss = -(advantages * pi.log_prob(actions)).sum()
        vf_loss = 0.5 * (self.value(obs).reshape(target_values.shape) - target_values).square().sum()
        entropy = pi.entropy().sum()
        total_loss = pi_loss + self.vf_loss_coeff * vf_loss + entropy_coeff * entropy
        set_learning_rate(self.optimizer, lr)
        descend(self.optimizer, total_loss, MAX_GRAD_NORM)
        return Losses(total_loss.detach(), pi_loss.detach(), vf_loss.detach(), entropy.detach())

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions drawn from the policy (B,) int64, and the values (B,)."""
        logits, values = self._policy_and_value(obs)
        return Categorical(logits=logits).sample(), values

    def prob_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities (B, A) and the values (B,)."""
        logits, values = self._policy_and_value(obs)
        return logits.softmax(dim=-1), values

    def predict(self, obs: Tensor) -> Tensor:
        """Return the likeliest actions (B,) int64."""
        actions: Tensor = self.model.policy(obs).argmax(dim=-1)
        return actions

    def value(self, obs: Tensor) -> Tensor:
        """Return the values (B,)."""
        values: Tensor = self.model.value(obs)
        return values

    def _policy_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        if not hasattr(self.model, "policy_and_value"):
            return self.model.policy(obs), self.model.value(obs)
        logits, values = self.model.policy_and_value(obs)
        return logits, values
