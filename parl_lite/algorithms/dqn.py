"""DQN: a value for each action. Knows tensors and the user's model; nothing of environments and replay."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import functional

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept, place
from parl_lite.algorithms.updates import bootstrapped, descend
from parl_lite.model import Model


class DQN(Algorithm):
    """Deep Q-network (Mnih et al. 2015, https://doi.org/10.1038/nature14236), with Adam and squared errors as in PARL.

    One step on the mean over the batch of (r + gamma (1 - terminal) max_a Q'(s', a) - Q(s, a))^2, where Q' is the
    target network, which `sync_target` makes equal to Q: the caller says when.

    Args:
        model: `forward(obs)` -> values (B, A).
        gamma: discount.
        lr: learning rate.
    """

    def __init__(self, model: Model, gamma: float, lr: float) -> None:
        self.model = place(accept(model, self, "forward"))
        self.target_model = copy.deepcopy(self.model)
        self.gamma = gamma
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def predict(self, obs: Tensor) -> Tensor:
        """Return the values of all actions (B, A)."""
        values: Tensor = self.model(obs)
        return values

    def learn(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, terminal: Tensor) -> float:
        """Make one step; return the loss.

        Args:
            obs, next_obs: (B, ...).
            action: (B,) or (B, 1) integers.
            reward, terminal: (B,) or (B, 1). A time limit is no terminal state.
        """
        value = self.model(obs).gather(1, action.reshape(-1, 1).long())  # (B, 1)
        with torch.no_grad():
            target = bootstrapped(reward, terminal, self._next_value(next_obs), self.gamma)
        loss = functional.mse_loss(value, target)
        descend(self.optimizer, loss)
        return loss.item()

    def sync_target(self) -> None:
        """Make the target network equal to the model."""
        self.model.sync_weights_to(self.target_model)

    def _next_value(self, next_obs: Tensor) -> Tensor:
        """Return the value of the best action (B, 1)."""
        best: Tensor = self.target_model(next_obs).max(dim=1, keepdim=True).values
        return best
