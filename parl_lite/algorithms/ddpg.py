"""DDPG: a deterministic policy that climbs its critic. Knows tensors and the user's model; nothing of environments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from parl_lite.algorithms.actor_critic import OffPolicyActorCritic
from parl_lite.algorithms.updates import bootstrapped


class DDPG(OffPolicyActorCritic):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971).

    The critic learns the mean of (r + gamma (1 - terminal) Q'(s', pi'(s')) - Q(s, a))^2, with pi' and Q' of the
    target; the actor the mean of - Q(s, pi(s)). Noise for exploring is the caller's to add.

    Args: as in `OffPolicyActorCritic`; the model's `value(obs, action)` -> (B, 1), `policy(obs)` -> (B, act_dim).
    """

    def predict(self, obs: Tensor) -> Tensor:
        """Return the policy's actions (B, act_dim)."""
        actions: Tensor = self.model.policy(obs)
        return actions

    def _critic_loss(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor) -> Tensor:
        with torch.no_grad():
            next_value = self.target_model.value(next_obs, self.target_model.policy(next_obs))
            target = bootstrapped(reward, terminal, next_value, self.gamma)
        return functional.mse_loss(self.model.value(obs, action), target)

    def _actor_loss(self, obs: Tensor) -> Tensor:
        loss: Tensor = -self.model.value(obs, self.model.policy(obs)).mean()
        return loss
