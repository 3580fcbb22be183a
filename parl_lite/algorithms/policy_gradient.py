"""PolicyGradient: REINFORCE. Knows tensors and the user's model; nothing of environments and clusters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Categorical

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept, place
from parl_lite.algorithms.updates import descend
from parl_lite.model import Model


class PolicyGradient(Algorithm):
    """Policy gradient by the likelihood ratio (Williams 1992, https://doi.org/10.1007/BF00992696).

    One step of Adam on the mean over the batch of - G log pi(a|s), with returns G as given: a baseline, or the mean,
    is the caller's to subtract.

    Args:
        model: `forward(obs)` -> probabilities (B, A) that sum to 1.
        lr: learning rate.
    """

    def __init__(self, model: Model, lr: float) -> None:
        self.model = place(accept(model, self, "forward"))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def predict(self, obs: Tensor) -> Tensor:
        """Return the probabilities (B, A), or (A,) for a single observation."""
        probabilities: Tensor = self.model(obs)
        return probabilities

    def learn(self, obs: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        """Make one step; return the loss.

        Args:
            obs: (B, ...).
            action: (B,) or (B, 1) integers.
            reward: returns from that step on, (B,) or (B, 1).
        """
        log_prob = Categorical(self.model(obs)).log_prob(action.reshape(-1))
        loss: Tensor = -(log_prob * reward.reshape(-1)).mean()
        descend(self.optimizer, loss)
        return loss.detach()
