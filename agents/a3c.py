"""A3C: actors compute gradients of the actor-critic, the learner applies them as they come. Knows nothing of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parl_lite.errors import ParlError

from .bounds import Count, Fraction, NotNegative, Positive
from .distributions import Distribution
from .models import actor_critic
from .normalize import update_statistics
from .on_policy import OnPolicy, Rollout
from .optimizers import RMSpropTF
from .registry import Entry
from .settings import GradientSettings, RunSettings
from .unrolling import evaluate
from .wirings.gradients import Gradients

Update = dict[str, Any]
"""`gradients`, a list of tensors; `n_steps`, steps that they are of."""


@dataclass(frozen=True, kw_only=True)
class A3CLearning(RunSettings):
    """Learning as in A3C."""

    unroll_length: Count = 5
    learning_rate: Positive = 7e-4
    """Learning rate of RMSProp, for the loss that is summed over the steps of a rollout and averaged over environments."""
    anneal: bool = True
    """The learning rate falls linearly to zero at total_steps."""
    rmsprop_decay: Fraction = 0.99
    """Decay of RMSProp's mean square."""
    rmsprop_epsilon: Positive = 0.1
    """Epsilon of RMSProp, under the root."""
    lambda_: Fraction = 1.0
    """Weight of longer sums in the advantage estimates; 1: rewards to the end of the rollout, then the value, as in the paper."""
    value_cost: NotNegative = 0.5
    """Weight of half the squared error of the value."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: NotNegative = 40.0
    """The gradient is scaled down to this norm, if longer; 0: never."""


@dataclass(frozen=True, kw_only=True)
class A3CSettings(A3CLearning, GradientSettings):
    """A3C."""

    envs_per_actor: Count = 1


class A3C(OnPolicy):
    """A3C, asynchronous advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

    Each actor computes, with weights of its own, gradients of the sum over the steps of a rollout of

        - A log pi(a|s)  +  value_cost / 2 (R - V(s))^2  -  entropy_cost H(pi(.|s))        A = R - V(s), held fixed

    with R = r + gamma r' + ... + gamma^n V(s_n); of several environments, the mean. The learner applies them to the
    shared weights by RMSProp, whose mean square m all actors share, too:

        m <- decay m + (1 - decay) g^2        w <- w - lr g / sqrt(m + epsilon)

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`.
        settings: only those about learning are read.

    Raises:
        ParlError: observations are to be normalised, by statistics of all of them, but only gradients reach the learner.
    """

    settings: A3CLearning

    def __init__(self, model: Any, settings: A3CLearning) -> None:
        super().__init__(model, settings)
        if settings.normalize_obs and isinstance(settings, GradientSettings):
            raise ParlError("only gradients reach the learner here, so nobody sees all observations: leave out normalize_obs.")
        self.optimizer = RMSpropTF(
            model.parameters(), settings.learning_rate, settings.rmsprop_decay, epsilon=settings.rmsprop_epsilon
        )

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Make one update from a rollout, columns (T, B, ...) as in `collector.py`; return losses and measures."""
        update, metrics = self.compute_gradients(batch)
        update_statistics(self.model, batch)
        return {**metrics, **self.apply_gradients(update)}

    def compute_gradients(self, batch: Rollout) -> tuple[Update, dict[str, float]]:
        """Return the gradients of the loss of a rollout, and its parts for each step."""
        settings, valid = self.settings, batch["valid"]
        n_envs, n_steps = valid.shape[1], int(valid.sum())

        # What the policy and the value say of the steps, and what came of them
        params, value, next_value = evaluate(self.model, batch)  # (T, B, P), (T, B), (T, B)
        log_prob, entropy = self._terms(self.distribution(params), batch["action"])  # (T, B), (T, B)
        advantage = self.advantages(batch, value, next_value)  # (T, B)
        returns = advantage + value.detach()

        # Sums over the steps, means over the environments
        policy_loss = -(advantage * log_prob)[valid].sum() / n_envs
        value_loss = 0.5 * (returns - value)[valid].square().sum() / n_envs
        entropy = entropy[valid].sum() / n_envs
        loss = policy_loss + settings.value_cost * value_loss - settings.entropy_cost * entropy
        gradients = torch.autograd.grad(loss, list(self.model.parameters()), allow_unused=True, materialize_grads=True)
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        steps_of_each = max(1, n_steps) / n_envs
        metrics = {name: part.item() / steps_of_each for name, part in parts.items()}
        return {"gradients": list(gradients), "n_steps": n_steps}, metrics

    def apply_gradients(self, update: Update) -> dict[str, float]:
        """Make one step of RMSProp."""
        settings, parameters = self.settings, list(self.model.parameters())
        self.set_learning_rate(self.optimizer, settings.learning_rate)
        for parameter, gradient in zip(parameters, update["gradients"], strict=True):
            parameter.grad = gradient
        norm = nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm or float("inf"))
        self.optimizer.step()
        self.env_steps += update["n_steps"]
        self.n_updates += 1
        return {"grad_norm": norm.item()}

    def _terms(self, pi: Distribution, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log probabilities of actions, and entropies, both (T, B)."""
        return pi.log_prob(action), pi.entropy()


ENTRY = Entry(
    name="a3c",
    settings=A3CSettings,
    algorithm=A3C,
    wiring=Gradients,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {"unroll_length": 32, "learning_rate": 5e-3, "reward_scale": 0.1, "envs_per_actor": 4},
        "ALE/*": {"total_steps": 10_000_000, "unroll_length": 20, "clip_reward": True, "life_loss": True},
    },
)
