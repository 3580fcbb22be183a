"""A2C: one step of the actor-critic gradient for each short rollout. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from .bounds import Count, Fraction, NotNegative, Positive
from .models import actor_critic
from .on_policy import OnPolicy, Rollout, normalized
from .optimizers import RMSpropTF
from .registry import Entry
from .settings import InStepSettings
from .targets import adam, descend
from .unrolling import evaluate
from .wirings.in_step import InStep


@dataclass(frozen=True, kw_only=True)
class A2CSettings(InStepSettings):
    """A2C."""

    envs_per_actor: Count = 8
    unroll_length: Count = 5
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """rmsprop as in TensorFlow, epsilon under the root, or adam."""
    optimizer_epsilon: Positive = 1e-5
    """Epsilon of either."""
    learning_rate: Positive = 7e-4
    """Learning rate, for the mean loss."""
    anneal: bool = True
    """The learning rate falls linearly to zero at total_steps."""
    lambda_: Fraction = 1.0
    """Weight of longer sums in the advantage estimates; 1: rewards to the end of the rollout, then the value, as in the paper."""
    normalize_advantage: bool = False
    """Advantages have mean 0 and standard deviation 1 in each batch."""
    value_cost: NotNegative = 0.5
    """Weight of half the squared error of the value."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: NotNegative = 0.5
    """The gradient is scaled down to this norm, if longer; 0: never."""


class A2C(OnPolicy):
    """A2C, advantage actor-critic: A3C in step (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

    With the advantage A = r + gamma r' + ... + gamma^n V(s_n) - V(s), one step on the mean over the rollout of

        - A log pi(a|s)  +  value_cost / 2 (A + V_old(s) - V(s))^2  -  entropy_cost H(pi(.|s))

    by RMSProp in TensorFlow's form, which the usual settings are made for, or Adam. Where baselines and SB3 have a
    vf_coef for the squared error, value_cost is twice that.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`.
        settings: only those about learning are read.
    """

    settings: A2CSettings

    def __init__(self, model: Any, settings: A2CSettings) -> None:
        super().__init__(model, settings)
        parameters, epsilon = list(model.parameters()), settings.optimizer_epsilon
        self.optimizer: torch.optim.Optimizer = (
            adam(parameters, settings.learning_rate, epsilon)
            if settings.optimizer == "adam"
            else RMSpropTF(parameters, settings.learning_rate, epsilon=epsilon)
        )

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Make one update from a rollout, columns (T, B, ...) as in `collector.py`; return losses and measures."""
        settings, valid = self.settings, batch["valid"]
        self.set_learning_rate(self.optimizer, settings.learning_rate)

        # What the policy and the value say of the steps, and what came of them
        params, value, next_value = evaluate(self.model, batch)  # (T, B, P), (T, B), (T, B)
        pi = self.distribution(params)
        advantage = self.advantages(batch, value, next_value)  # (T, B)
        target = (advantage + value.detach())[valid]  # (N,)
        adv = normalized(advantage[valid]) if settings.normalize_advantage else advantage[valid]  # (N,)

        # Losses and one step
        policy_loss = -(adv * pi.log_prob(batch["action"])[valid]).mean()
        value_loss = 0.5 * (target - value[valid]).square().mean()
        entropy = pi.entropy()[valid].mean()
        loss = policy_loss + settings.value_cost * value_loss - settings.entropy_cost * entropy
        grad_norm = descend(self.optimizer, loss, settings.max_grad_norm)
        self.count(batch)
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "grad_norm": grad_norm,
        }


MUJOCO = {  # as in rl-baselines3-zoo
    "total_steps": 1_000_000,
    "unroll_length": 8,
    "learning_rate": 9.6e-4,
    "lambda_": 0.9,
    "value_cost": 0.8,
    "entropy_cost": 0.0,
    "log_std": -2.0,
    "normalize_obs": True,
    "normalize_reward": True,
}

ENTRY = Entry(
    name="a2c",
    settings=A2CSettings,
    algorithm=A2C,
    wiring=InStep,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {"unroll_length": 16, "learning_rate": 3e-3, "entropy_cost": 0.0, "reward_scale": 0.1},
        "Acrobot-v1": {"unroll_length": 16, "learning_rate": 2e-3, "normalize_obs": True},
        **dict.fromkeys(("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5"), MUJOCO),
        "ALE/*": {"total_steps": 10_000_000, "clip_reward": True, "life_loss": True, "value_cost": 1.0},
    },
)
