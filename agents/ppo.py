"""PPO: several passes over each batch, without going far from the policy that made it. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .bounds import Count, Fraction, NotNegative, Positive
from .models import actor_critic
from .on_policy import OnPolicy, Rollout, Steps, epochs, forward, means, normalized
from .registry import Entry
from .settings import InStepSettings
from .targets import adam, descend
from .wirings.in_step import InStep


@dataclass(frozen=True, kw_only=True)
class PPOSettings(InStepSettings):
    """PPO."""

    envs_per_actor: Count = 4
    unroll_length: Count = 128
    learning_rate: Positive = 2.5e-4
    """Learning rate, for Adam and the mean loss."""
    anneal: bool = True
    """The learning rate falls linearly to zero at total_steps."""
    n_epochs: Count = 4
    """Passes over each batch."""
    n_minibatches: Count = 4
    """Parts of equal size that a batch is divided into anew in each pass; of recurrent networks, by environments."""
    clip: Positive = 0.2
    """Where the ratio of new to old probability of an action is further from 1 than this, nothing more is to be gained."""
    lambda_: Fraction = 0.95
    """Weight of longer sums in the advantage estimates: 0 the least variance, 1 the least bias."""
    normalize_advantage: bool = True
    """Advantages have mean 0 and standard deviation 1 in each minibatch."""
    clip_value: bool = False
    """The larger error of the value and of the value held within `clip` of what it was before counts."""
    value_cost: NotNegative = 0.5
    """Weight of half the squared error of the value."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: NotNegative = 0.5
    """The gradient is scaled down to this norm, if longer; 0: never."""
    target_kl: NotNegative = 0.0
    """A minibatch in which the policies differ by 1.5 times this KL divergence is the last of its batch; 0: none is."""


class PPO(OnPolicy):
    """PPO, proximal policy optimisation with the clipped objective (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

    With w = pi(a|s) / pi_old(a|s) and advantages A by GAE, normalised, a step of Adam for each minibatch on the mean of

        - min(w A, clip(w, 1 - clip, 1 + clip) A)  +  value_cost / 2 (V(s) - target)^2  -  entropy_cost H(pi(.|s))

    with target = A + V_old(s). A truncated episode bootstraps from its final observation, a terminated one does not.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`.
        settings: only those about learning are read.
    """

    settings: PPOSettings

    def __init__(self, model: Any, settings: PPOSettings) -> None:
        super().__init__(model, settings)
        self.optimizer = adam(model.parameters(), settings.learning_rate, epsilon=1e-5)

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Learn from a rollout, columns (T, B, ...) as in `collector.py`; return means of losses and measures."""
        settings, rollout = self.settings, self.rollout_of(batch)
        self.set_learning_rate(self.optimizer, settings.learning_rate)
        measures = []
        for steps in epochs(rollout, settings.n_epochs, settings.n_minibatches):
            loss, measured = self._loss(steps)
            measures.append(measured)
            if settings.target_kl and measured["kl"] > 1.5 * settings.target_kl:
                break
            descend(self.optimizer, loss, settings.max_grad_norm)
        self.count(batch)
        return {**means(measures), "sgd_steps": len(measures)}

    def _loss(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of some steps, and what is worth logging."""
        settings = self.settings
        params, value = forward(self.model, steps.inputs)  # (N, P), (N,)
        pi = self.distribution(params)
        log_ratio = pi.log_prob(steps.action) - steps.log_prob  # (N,)
        ratio = log_ratio.exp()
        adv = normalized(steps.advantage) if settings.normalize_advantage else steps.advantage
        policy_loss = clipped_loss(ratio, adv, settings.clip)
        value_loss = self._value_loss(value, steps)
        entropy = pi.entropy().mean()
        loss = policy_loss + settings.value_cost * value_loss - settings.entropy_cost * entropy
        measured = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": (ratio - 1 - log_ratio).mean(),  # unbiased and never negative, http://joschu.net/blog/kl-approx.html
            "clip_share": ((ratio - 1).abs() > settings.clip).float().mean(),
        }
        return loss, {name: each.detach() for name, each in measured.items()}

    def _value_loss(self, value: Tensor, steps: Steps) -> Tensor:
        """Return half the mean squared error of values (N,)."""
        error = (value - steps.target).square()
        if self.settings.clip_value:
            held = steps.value + (value - steps.value).clamp(-self.settings.clip, self.settings.clip)
            error = torch.max(error, (held - steps.target).square())
        return 0.5 * error.mean()


def clipped_loss(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Return the mean of -min(w A, clip(w, 1 - clip, 1 + clip) A) for w, A (N,)."""
    return -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


MUJOCO = {
    "total_steps": 1_000_000,
    "envs_per_actor": 16,
    "unroll_length": 64,
    "log_std": -0.5,
    "learning_rate": 3e-4,
    "n_epochs": 10,
    "n_minibatches": 8,
    "entropy_cost": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
}

HOPPER = {**MUJOCO, "envs_per_actor": 4, "unroll_length": 256, "log_std": 0.0, "n_minibatches": 32}

ENTRY = Entry(
    name="ppo",
    settings=PPOSettings,
    algorithm=PPO,
    wiring=InStep,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {
            "envs_per_actor": 16,
            "unroll_length": 32,
            "learning_rate": 1e-3,
            "n_epochs": 6,
            "entropy_cost": 0.0,
            "reward_scale": 0.1,
        },
        "Acrobot-v1": {
            "envs_per_actor": 16,
            "unroll_length": 64,
            "learning_rate": 1e-3,
            "lambda_": 0.94,
            "entropy_cost": 0.0,
            "normalize_obs": True,
        },
        "LunarLander-v3": {
            "total_steps": 1_000_000,
            "envs_per_actor": 16,
            "unroll_length": 64,
            "learning_rate": 7e-4,
            "n_epochs": 10,
            "n_minibatches": 8,
            "gamma": 0.999,
            "lambda_": 0.98,
            "reward_scale": 0.05,  # else the value's gradient is nearly all that the bound of its norm leaves
        },
        "Pendulum-v1": {
            "total_steps": 200_000,
            "learning_rate": 1e-3,
            "n_epochs": 10,
            "n_minibatches": 16,
            "gamma": 0.9,
            "entropy_cost": 0.0,
            "normalize_reward": True,
        },
        **dict.fromkeys(("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5"), MUJOCO),
        "Hopper-v5": HOPPER,
        "ALE/*": {"total_steps": 10_000_000, "clip": 0.1, "clip_value": True, "clip_reward": True, "life_loss": True},
    },
)
