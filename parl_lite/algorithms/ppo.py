"""PPO: several epochs over one batch, kept near the policy that made it. Knows tensors and the user's model only."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal

from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.models import accept, place
from parl_lite.algorithms.updates import descend, set_learning_rate
from parl_lite.model import Model


class PPO(Algorithm):
    """Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347), the clipped objective.

    With the ratio w = pi(a|s) / pi_old(a|s) and the advantage A, one step of Adam on the mean over the minibatch of

        - min(w A, clip(w, 1 - clip_param, 1 + clip_param) A)  +  value_loss_coef / 2 (V(s) - return)^2
        - entropy_coef H(pi(.|s))

    Args:
        model: `value(obs)` -> (B,) or (B, 1); `policy(obs)` -> logits (B, A), or with `continuous_action` mean and
            standard deviation, both (B, act_dim).
        clip_param: bound of |w - 1|, and of the value's change where that is clipped.
        value_loss_coef: weight of half the squared error of the value.
        entropy_coef: weight of the entropy bonus.
        initial_lr: learning rate, until `learn` is given another.
        eps: of Adam.
        max_grad_norm: the gradient is scaled down to this norm, if longer.
        use_clipped_value_loss: the larger error of V(s) and of V(s) held within `clip_param` of the old value.
        norm_adv: advantages are normalised within the minibatch.
        continuous_action: actions are vectors, drawn from a Gaussian.
    """

    def __init__(
        self,
        model: Model,
        clip_param: float = 0.1,
        value_loss_coef: float = 0.5,
        entropy_coef: float = 0.01,
        initial_lr: float = 2.5e-4,
        eps: float = 1e-5,
        max_grad_norm: float = 0.5,
        use_clipped_value_loss: bool = True,
        norm_adv: bool = True,
        continuous_action: bool = False,
    ) -> None:
        self.model = place(accept(model, self, "policy", "value"))
        self.clip_param = clip_param
        self.value_loss_coef = value_loss_coef
        self.entropy_coef = entropy_coef
        self.max_grad_norm = max_grad_norm
        self.use_clipped_value_loss = use_clipped_value_loss
        self.norm_adv = norm_adv
        self.continuous_action = continuous_action
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=initial_lr, eps=eps)

    def learn(
        self,
        batch_obs: Tensor,
        batch_action: Tensor,
        batch_value: Tensor,
        batch_return: Tensor,
        batch_logprob: Tensor,
        batch_adv: Tensor,
        lr: float | None = None,
    ) -> tuple[float, float, float]:
        """Make one step on a minibatch; return the losses of value and policy, and the entropy, each a mean.

        Args:
            batch_obs: (B, ...).
            batch_action: (B,) integers, or (B, act_dim).
            batch_value, batch_logprob: what the policy that acted said of them, (B,).
            batch_return, batch_adv: (B,).
            lr: learning rate from now on; None leaves it.
        """
        pi = self._policy(batch_obs)
        entropy = pi.entropy().mean()
        action_loss = self._action_loss(pi.log_prob(batch_action) - batch_logprob, batch_adv)
        value_loss = self._value_loss(self.model.value(batch_obs).reshape(-1), batch_value, batch_return)
        loss = action_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        if lr is not None:
            set_learning_rate(self.optimizer, lr)
        descend(self.optimizer, loss, self.max_grad_norm)
        return value_loss.item(), action_loss.item(), entropy.item()

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return values as the model gives them, actions drawn from the policy, their log probabilities and entropies (B,)."""
        pi = self._policy(obs)
        action = pi.sample()
        return self.model.value(obs), action, pi.log_prob(action), pi.entropy()

    def predict(self, obs: Tensor) -> Tensor:
        """Return the likeliest actions: (B, 1) int64, or the means (B, act_dim)."""
        if self.continuous_action:
            actions, _ = self.model.policy(obs)
        else:
            actions = self.model.policy(obs).argmax(dim=-1, keepdim=True)
        return cast(Tensor, actions)

    def value(self, obs: Tensor) -> Tensor:
        """Return values as the model gives them."""
        values: Tensor = self.model.value(obs)
        return values

    def _policy(self, obs: Tensor) -> Distribution:
        """Return the distribution over actions; its log probabilities and entropies are (B,)."""
        if self.continuous_action:
            return Independent(Normal(*self.model.policy(obs)), 1)
        return Categorical(logits=self.model.policy(obs))

    def _action_loss(self, log_ratio: Tensor, adv: Tensor) -> Tensor:
        if self.norm_adv and adv.numel() > 1:  # one alone has no deviation
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip_param, 1 + self.clip_param)
        return -torch.min(ratio * adv, clipped * adv).mean()

    def _value_loss(self, value: Tensor, old_value: Tensor, target: Tensor) -> Tensor:
        error = (value - target).square()
        if self.use_clipped_value_loss:
            held = old_value + (value - old_value).clamp(-self.clip_param, self.clip_param)
            error = torch.max(error, (held - target).square())
        return 0.5 * error.mean()
