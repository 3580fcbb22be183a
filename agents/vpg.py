"""VPG: one step of the policy gradient for each batch, then many of the value. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .bounds import Count, Fraction, NotNegative, Positive
from .models import actor_critic
from .on_policy import OnPolicy, Rollout, all_steps, fit_value, normalized, separate_parameters
from .registry import Entry
from .settings import InStepSettings
from .targets import adam, descend
from .wirings.in_step import InStep


@dataclass(frozen=True, kw_only=True)
class VPGSettings(InStepSettings):
    """VPG."""

    envs_per_actor: Count = 16
    unroll_length: Count = 32
    learning_rate: Positive = 1e-2
    """Learning rate of the policy, for Adam and the mean loss."""
    value_learning_rate: Positive = 1e-3
    """Learning rate of the value, for Adam."""
    anneal: bool = True
    """Both learning rates fall linearly to zero at total_steps."""
    lambda_: Fraction = 0.97
    """Weight of longer sums in the advantage estimates: 0 the least variance, 1 the least bias."""
    entropy_cost: NotNegative = 0.0
    """Weight of the entropy bonus."""
    value_epochs: Count = 10
    """Passes over each batch to fit the value."""
    value_minibatches: Count = 4
    """Parts of equal size that the batch is divided into anew in each of them."""


class VPG(OnPolicy):
    """VPG, vanilla policy gradient: REINFORCE with a value for a baseline (Sutton et al. 2000; Williams 1992).

    One step of Adam for the policy on the mean of -A log pi(a|s) - entropy_cost H(pi(.|s)), with the advantages A by GAE
    (Schulman et al. 2016, https://arxiv.org/abs/1506.02438), normalised. Then steps for the value on
    the mean of (A + V_old(s) - V(s))^2 / 2.

    Args:
        model: has `policy(obs)`, `value(obs)`, `get_actor_params()` and `get_critic_params()`, and for other than
            discrete actions a `distribution`.
        settings: only those about learning are read.

    Raises:
        ParlError: policy and value share layers.
    """

    settings: VPGSettings

    def __init__(self, model: Any, settings: VPGSettings) -> None:
        super().__init__(model, settings)
        actor, critic = separate_parameters(model, "vpg")
        self.optimizer = adam(actor, settings.learning_rate)
        self.value_optimizer = adam(critic, settings.value_learning_rate)

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Learn from a rollout, columns (T, B, ...) as in `collector.py`; return losses and measures."""
        settings, rollout = self.settings, self.rollout_of(batch)
        self.set_learning_rate(self.optimizer, settings.learning_rate)
        self.set_learning_rate(self.value_optimizer, settings.value_learning_rate)

        # One step of the policy
        steps = all_steps(rollout)
        pi = self.distribution(self.model.policy(steps.inputs.obs))
        policy_loss = -(normalized(steps.advantage) * pi.log_prob(steps.action)).mean()
        entropy = pi.entropy().mean()
        grad_norm = descend(self.optimizer, policy_loss - settings.entropy_cost * entropy)

        # Many of the value
        value_loss = fit_value(self.model, self.value_optimizer, rollout, settings.value_epochs, settings.value_minibatches)
        self.count(batch)
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss,
            "entropy": entropy.item(),
            "grad_norm": grad_norm,
        }


MUJOCO = {
    "total_steps": 1_000_000,
    "unroll_length": 64,
    "log_std": -0.5,
    "learning_rate": 3e-3,
    "value_minibatches": 8,
    "normalize_obs": True,
    "normalize_reward": True,
}

ENTRY = Entry(
    name="vpg",
    settings=VPGSettings,
    algorithm=VPG,
    wiring=InStep,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {"value_learning_rate": 5e-3},
        **dict.fromkeys(("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5"), MUJOCO),
    },
)
