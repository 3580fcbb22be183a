"""SAC: a policy that is paid for staying random. Knows tensors and the user's model; nothing of environments."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn import functional

from parl_lite.algorithms.actor_critic import OffPolicyActorCritic
from parl_lite.algorithms.updates import bootstrapped
from parl_lite.model import Model


class SAC(OffPolicyActorCritic):
    """Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290), with the temperature given.

    With a' and log pi(a'|s') drawn anew, both critics learn the mean of their squared errors against

        r + gamma (1 - terminal) (min(Q1', Q2')(s', a') - alpha log pi(a'|s'))

    and the actor the mean of alpha log pi(a|s) - min(Q1, Q2)(s, a), a drawn by the reparameterisation.

    Args:
        model: as in `OffPolicyActorCritic`, with `policy(obs)` -> mean and log of the standard deviation, both
            (B, act_dim), before tanh; `value(obs, action)` -> two values (B, 1).
        alpha: temperature: what a nat of entropy is worth in reward.
    """

    def __init__(self, model: Model, gamma: float, tau: float, alpha: float, actor_lr: float, critic_lr: float) -> None:
        super().__init__(model, gamma, tau, actor_lr, critic_lr)
        self.alpha = alpha

    def predict(self, obs: Tensor) -> Tensor:
        """Return tanh of the policy's means (B, act_dim)."""
        mean, _ = self.model.policy(obs)
        actions: Tensor = mean.tanh()
        return actions

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions drawn from the policy (B, act_dim), and their log probabilities (B, 1); gradients go through."""
        mean, log_std = self.model.policy(obs)
        normal = Normal(mean, log_std.exp())
        unbounded = normal.rsample()
        log_prob = normal.log_prob(unbounded) - _log_slope_of_tanh(unbounded)
        return unbounded.tanh(), log_prob.sum(dim=-1, keepdim=True)

    def _critic_loss(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor) -> Tensor:
        with torch.no_grad():
            next_action, next_log_prob = self.sample(next_obs)
            next_value = torch.min(*self.target_model.value(next_obs, next_action))
            soft_value = next_value - self.alpha * next_log_prob.reshape(next_value.shape)
            target = bootstrapped(reward, terminal, soft_value, self.gamma)
        first, second = self.model.value(obs, action)
        return functional.mse_loss(first, target) + functional.mse_loss(second, target)

    def _actor_loss(self, obs: Tensor) -> Tensor:
        action, log_prob = self.sample(obs)
        value = torch.min(*self.model.value(obs, action))
        loss: Tensor = (self.alpha * log_prob.reshape(value.shape) - value).mean()
        return loss


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """Return log(1 - tanh(x)^2) without its loss of digits where tanh(x) is near 1."""
    return 2 * (math.log(2) - x - functional.softplus(-2 * x))
