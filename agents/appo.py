"""APPO: PPO's objective on rollouts of older policies, which V-trace corrects. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .models import actor_critic
from .on_policy import OnPolicy, Rollout, Steps, epochs, forward, means, normalized
from .ppo import clipped_loss
from .registry import Entry
from .returns import Rows, vtrace
from .settings import TrajectorySettings
from .targets import adam, descend, target_of
from .unrolling import evaluate
from .wirings.trajectories import Trajectories


@dataclass(frozen=True, kw_only=True)
class APPOSettings(TrajectorySettings):
    """APPO."""

    learning_rate: Positive = 5e-4
    """Learning rate, for Adam and the mean loss."""
    anneal: bool = True
    """The learning rate falls linearly to zero at total_steps."""
    n_epochs: Count = 2
    """Passes over each batch."""
    n_minibatches: Count = 2
    """Parts of equal size that a batch is divided into anew in each pass; of recurrent networks, by environments."""
    clip: Positive = 0.2
    """Where the ratio of new to proximal probability of an action is further from 1 than this, nothing more is to be gained."""
    lambda_: Fraction = 0.95
    """Weight of longer traces in V-trace."""
    rho_bar: Positive = 1.0
    """Bound of the importance ratio of a step: which policy the value is of."""
    c_bar: Positive = 1.0
    """Bound of the importance ratios along a trace: speed against variance."""
    value_cost: NotNegative = 0.5
    """Weight of half the squared error of the value."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus."""
    kl_cost: NotNegative = 0.0
    """Weight of the KL divergence of the new policy from the proximal one."""
    max_grad_norm: NotNegative = 0.5
    """The gradient is scaled down to this norm, if longer; 0: never."""
    target_interval: CountOrZero = 0
    """Updates for which the proximal policy and the values of V-trace stay as they are; 0: they are those before each update."""


class APPO(OnPolicy):
    """APPO, asynchronous PPO (as in Petrenko et al. 2020, https://arxiv.org/abs/2006.11751).

    An older policy mu acted. Ratios within an update are taken to a proximal policy rho (Hilton et al. 2022,
    https://arxiv.org/abs/2110.00641): the learner's before the update, or a target network's (IMPACT, Luo et al. 2020,
    https://arxiv.org/abs/1912.00167). V-trace corrects from mu to rho, and gives targets v and advantages A, weighted by
    min(rho_bar, rho/mu). With w = pi(a|s) / rho(a|s), and A normalised, a step of Adam for each minibatch on the mean of

        - min(w A, clip(w, 1 - clip, 1 + clip) A)  +  value_cost / 2 (v - V(s))^2
        - entropy_cost H(pi(.|s))  +  kl_cost KL(rho(.|s) || pi(.|s))

    With a single pass over a single minibatch this is IMPALA.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`.
        settings: only those about learning are read.
    """

    settings: APPOSettings

    def __init__(self, model: Any, settings: APPOSettings) -> None:
        super().__init__(model, settings)
        self.target = target_of(model) if settings.target_interval else None
        self.optimizer = adam(model.parameters(), settings.learning_rate, epsilon=1e-5)

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Learn from a rollout, columns (T, B, ...) as in `collector.py`; return means of losses and measures."""
        settings, rollout = self.settings, self.rollout_of(batch)
        self.set_learning_rate(self.optimizer, settings.learning_rate)
        measures = []
        for steps in epochs(rollout, settings.n_epochs, settings.n_minibatches):
            loss, measured = self._loss(steps)
            descend(self.optimizer, loss, settings.max_grad_norm)
            measures.append(measured)
        self.count(batch)
        if self.target is not None and self.n_updates % settings.target_interval == 0:
            self.target.load_state_dict(self.model.state_dict())
        return {**means(measures), "sgd_steps": len(measures)}

    @torch.no_grad()
    def rollout_of(self, batch: Rollout) -> Rollout:
        """Return the batch with values, advantages, targets, and in the columns of mu the proximal policy."""
        settings = self.settings
        params, value, next_value = evaluate(self.model if self.target is None else self.target, batch)
        log_prob = self.distribution(params).log_prob(batch["action"])  # (T, B)
        rows = Rows(self.scale_reward(batch), batch["terminated"], batch["truncated"], batch["valid"])
        bounds = (settings.gamma, settings.lambda_, settings.rho_bar, settings.c_bar)
        target, advantage = vtrace(rows, value, next_value, log_prob - batch["behaviour_log_prob"], *bounds)
        learned = {"value": value, "advantage": advantage, "target": target}
        params = params.clone()  # a model may return its very weights, which the updates change
        return {**batch, **learned, "behaviour_logits": params, "behaviour_log_prob": log_prob}

    def _loss(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of some steps, and what is worth logging."""
        settings = self.settings
        params, value = forward(self.model, steps.inputs)  # (N, P), (N,)
        pi, proximal = self.distribution(params), self.distribution(steps.params)
        ratio = (pi.log_prob(steps.action) - steps.log_prob).exp()  # (N,)
        policy_loss = clipped_loss(ratio, normalized(steps.advantage), settings.clip)
        value_loss = 0.5 * (steps.target - value).square().mean()
        entropy = pi.entropy().mean()
        kl = proximal.kl(pi).mean()
        loss = policy_loss + settings.value_cost * value_loss - settings.entropy_cost * entropy + settings.kl_cost * kl
        measured = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": kl,
            "clip_share": ((ratio - 1).abs() > settings.clip).float().mean(),
        }
        return loss, {name: each.detach() for name, each in measured.items()}


ENTRY = Entry(
    name="appo",
    settings=APPOSettings,
    algorithm=APPO,
    wiring=Trajectories,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {"learning_rate": 2e-3, "reward_scale": 0.1, "entropy_cost": 0.0},
        "ALE/*": {
            "total_steps": 10_000_000,
            "unroll_length": 32,
            "n_epochs": 3,
            "n_minibatches": 4,
            "clip": 0.1,
            "clip_reward": True,
            "life_loss": True,
        },
    },
)
