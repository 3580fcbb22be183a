"""DDQN: DQN that does not believe its own maximum. Knows tensors and the user's model; nothing of environments."""

from __future__ import annotations

from torch import Tensor

from parl_lite.algorithms.dqn import DQN


class DDQN(DQN):
    """Double DQN (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461): DQN with the target

        r + gamma (1 - terminal) Q'(s', argmax_a Q(s', a))

    The model chooses the action and the target network judges it; a maximum of one's own errors would be too high.
    """

    def _next_value(self, next_obs: Tensor) -> Tensor:
        """Return the target network's value of the model's best action (B, 1)."""
        chosen = self.model(next_obs).argmax(dim=1, keepdim=True)
        judged: Tensor = self.target_model(next_obs).gather(1, chosen)
        return judged
