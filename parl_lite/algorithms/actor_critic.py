"""What DDPG, TD3 and SAC share: a model, its slow copy, and an optimiser for each half. Knows tensors only."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept, place
from parl_lite.algorithms.updates import descend
from parl_lite.model import Model


class OffPolicyActorCritic(Algorithm):
    """One step for the critic, one for the actor, then target = (1 - tau) target + tau model.

    Args:
        model: `policy(obs)`, `value(obs, action)`, and `get_actor_params()`, `get_critic_params()`: the parameters of
            each half.
        gamma: discount.
        tau: how far the target moves at each update.
        actor_lr, critic_lr: learning rates of Adam.
        methods: further methods that the model must have.
    """

    def __init__(
        self, model: Model, gamma: float, tau: float, actor_lr: float, critic_lr: float, methods: tuple[str, ...] = ()
    ) -> None:
        self.model = place(accept(model, self, "policy", "value", "get_actor_params", "get_critic_params", *methods))
        self.target_model = copy.deepcopy(self.model)
        self.gamma = gamma
        self.tau = tau
        self.actor_optimizer = torch.optim.Adam(self.model.get_actor_params(), lr=actor_lr)
        self.critic_optimizer = torch.optim.Adam(self.model.get_critic_params(), lr=critic_lr)

    def learn(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Make one update; return the losses of critic and actor, None for an actor that did not learn.

        Args:
            obs, next_obs: (B, ...).
            action: (B, act_dim), each in [-1, 1].
            reward, terminal: (B,) or (B, 1). A time limit is no terminal state.
        """
        critic_loss = self._critic_loss(obs, action, reward, next_obs, terminal)
        descend(self.critic_optimizer, critic_loss)
        return critic_loss.detach(), self._learn_actor(obs)

    def sync_target(self, decay: float | None = None) -> None:
        """Set target = decay target + (1 - decay) model, with decay = 1 - tau unless given."""
        self.model.sync_weights_to(self.target_model, decay=1.0 - self.tau if decay is None else decay)

    def _learn_actor(self, obs: Tensor) -> Tensor | None:
        # The loss reaches the critic's parameters, too, but only the actor's optimiser makes a step; the critic's
        # clears its gradients before it makes its own.
        actor_loss = self._actor_loss(obs)
        descend(self.actor_optimizer, actor_loss)
        self.sync_target()
        return actor_loss.detach()

    def _critic_loss(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor) -> Tensor:
        raise NotImplementedError

    def _actor_loss(self, obs: Tensor) -> Tensor:
        raise NotImplementedError
