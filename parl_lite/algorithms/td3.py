"""TD3: DDPG with two doubting critics, a noisy target and a patient actor. Knows tensors and the user's model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from parl_lite.algorithms.actor_critic import OffPolicyActorCritic
from parl_lite.algorithms.updates import bootstrapped
from parl_lite.model import Model


class TD3(OffPolicyActorCritic):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477).

    Both critics learn the mean of their squared errors against one target,

        r + gamma (1 - terminal) min(Q1', Q2')(s', clip(pi'(s') + clip(noise, -noise_clip, noise_clip), -1, 1))

    and every `policy_freq` updates the actor learns the mean of - Q1(s, pi(s)) and the target moves.

    Args:
        model: as in `OffPolicyActorCritic`, with `value(obs, action)` -> two values (B, 1), and `Q1(obs, action)` -> the
            first alone; actions are in [-1, 1].
        policy_noise: standard deviation of the noise of the target's actions.
        noise_clip: bound of that noise.
        policy_freq: updates of the critics for one of the actor.
    """

    def __init__(
        self,
        model: Model,
        gamma: float,
        tau: float,
        actor_lr: float,
        critic_lr: float,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        policy_freq: int = 2,
    ) -> None:
        super().__init__(model, gamma, tau, actor_lr, critic_lr, methods=("Q1",))
        self.policy_noise = policy_noise
        self.noise_clip = noise_clip
        self.policy_freq = policy_freq
        self.total_it = 0

    def predict(self, obs: Tensor) -> Tensor:
        """Return the policy's actions (B, act_dim)."""
        actions: Tensor = self.model.policy(obs)
        return actions

    def _learn_actor(self, obs: Tensor) -> Tensor | None:
        self.total_it += 1
        return None if self.total_it % self.policy_freq else super()._learn_actor(obs)

    def _critic_loss(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor) -> Tensor:
        with torch.no_grad():
            noise = (self.policy_noise * torch.randn_like(action)).clamp(-self.noise_clip, self.noise_clip)
            next_action = (self.target_model.policy(next_obs) + noise).clamp(-1, 1)
            next_value = torch.min(*self.target_model.value(next_obs, next_action))
            target = bootstrapped(reward, terminal, next_value, self.gamma)
        first, second = self.model.value(obs, action)
        return functional.mse_loss(first, target) + functional.mse_loss(second, target)

    def _actor_loss(self, obs: Tensor) -> Tensor:
        loss: Tensor = -self.model.Q1(obs, self.model.policy(obs)).mean()
        return loss
