"""IMPALA: learns from steps of slightly older policies. Knows tensors and the user's model; nothing of actors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept, place
from parl_lite.algorithms.updates import descend, set_learning_rate, vtrace
from parl_lite.model import Model

MAX_GRAD_NORM = 40.0
"""The gradient of the sum over the batch is scaled down to this norm, if longer."""


class VTraceLoss(NamedTuple):
    """What `learn` returns of its losses; scalars, sums over the batch, without gradients."""

    total_loss: Tensor
    pi_loss: Tensor
    vf_loss: Tensor
    entropy: Tensor


class IMPALA(Algorithm):
    """Importance weighted actor-learner architecture (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561).

    With targets v and advantages A by V-trace, one step of Adam on the **sum** over the batch of

        - A log pi(a|s)  +  vf_loss_coeff / 2 (V(s) - v)^2  +  entropy_coeff H(pi(.|s))

    Args:
        model: `policy(obs)` -> logits (B, A), `value(obs)` -> (B,).
        sample_batch_steps: T, steps of one environment in a row in every batch.
        gamma: discount.
        vf_loss_coeff: weight of half the squared error of the value.
        clip_rho_threshold: bound of the importance ratios in the targets.
        clip_pg_rho_threshold: bound of the importance ratios in the advantages.
    """

    def __init__(
        self,
        model: Model,
        sample_batch_steps: int,
        gamma: float,
        vf_loss_coeff: float,
        clip_rho_threshold: float,
        clip_pg_rho_threshold: float,
    ) -> None:
        self.model = place(accept(model, self, "policy", "value"))
        self.sample_batch_steps = sample_batch_steps
        self.gamma = gamma
        self.vf_loss_coeff = vf_loss_coeff
        self.clip_rho_threshold = clip_rho_threshold
        self.clip_pg_rho_threshold = clip_pg_rho_threshold
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def learn(
        self,
        obs: Tensor,
        actions: Tensor,
        behaviour_logits: Tensor,
        rewards: Tensor,
        dones: Tensor,
        learning_rate: float,
        entropy_coeff: float,
    ) -> tuple[VTraceLoss, Tensor]:
        """Make one step; return the losses, and the mean KL divergence from the actors' policies to the learner's.

        Rows come environment after environment, `sample_batch_steps` of each. The last row of each is only
        bootstrapped from.

        Args:
            obs: (B * T, ...).
            actions: (B * T,) integers.
            behaviour_logits: of the policies that acted, (B * T, A).
            rewards, dones: (B * T,).
            learning_rate: from now on.
            entropy_coeff: weight of the entropy, usually below zero.
        """
        pi = Categorical(logits=self.model.policy(obs))
        mu = Categorical(logits=behaviour_logits)
        log_prob = self._rows(pi.log_prob(actions))[:-1]
        ratio = (log_prob - self._rows(mu.log_prob(actions))[:-1]).exp()
        discount = self.gamma * (1 - self._rows(dones)[:-1].to(log_prob.dtype))
        value = self._rows(self.model.value(obs))  # (T, B)
        bounds = (self.clip_rho_threshold, self.clip_pg_rho_threshold)
        target, advantage = vtrace(ratio, discount, self._rows(rewards)[:-1], value[:-1], value[-1], *bounds)

        pi_loss = -(advantage * log_prob).sum()
        vf_loss = 0.5 * (value[:-1] - target).square().sum()
        entropy = self._rows(pi.entropy())[:-1].sum()
        total_loss = pi_loss + self.vf_loss_coeff * vf_loss + entropy_coeff * entropy
        set_learning_rate(self.optimizer, learning_rate)
        descend(self.optimizer, total_loss, MAX_GRAD_NORM)
        losses = VTraceLoss(total_loss.detach(), pi_loss.detach(), vf_loss.detach(), entropy.detach())
        return losses, kl_divergence(pi, mu).mean().detach()

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities to draw actions from, and the logits to send along as `behaviour_logits`; both (B, A)."""
        logits: Tensor = self.model.policy(obs)
        return logits.softmax(dim=-1), logits

    def predict(self, obs: Tensor) -> Tensor:
        """Return the likeliest actions (B,) int64."""
        actions: Tensor = self.model.policy(obs).argmax(dim=-1)
        return actions

    def _rows(self, column: Tensor) -> Tensor:
        """Return (T, B) of a column (B * T,)."""
        if column.numel() % self.sample_batch_steps:
            raise ValueError(
                f"{column.numel()} rows are no multiple of sample_batch_steps={self.sample_batch_steps}: "
                f"give that many steps of each environment, one environment after the other"
            )
        return column.reshape(-1, self.sample_batch_steps).T
