"""IMPALA: an actor-critic that learns from rollouts of slightly older policies. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parl_lite.algorithm import Algorithm

from .distributions import distribution_of
from .models import actor_critic
from .normalize import ReturnScaler, update_statistics
from .registry import Entry
from .returns import Rows, vtrace
from .settings import TrajectorySettings
from .unrolling import evaluate
from .wirings.trajectories import Trajectories


@dataclass(frozen=True, kw_only=True)
class ImpalaSettings(TrajectorySettings):
    """IMPALA."""

    learning_rate: float = 2e-3
    """Learning rate of the policy, for Adam and the mean loss; falls linearly to zero at total_steps."""
    value_learning_rate: float = 5e-3
    """Learning rate of the value, likewise; not used by models in which both share layers."""
    lambda_: float = 0.95
    """Weight of longer traces in V-trace: 1 is the paper's, less has less variance."""
    rho_bar: float = 1.0
    """Bound of the importance ratio of a step: which policy the value is of."""
    c_bar: float = 1.0
    """Bound of the importance ratios along a trace: speed against variance."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus; falls linearly to zero at total_steps."""
    value_cost: float = 0.5
    """Weight of half the squared error of the value."""
    max_grad_norm: float = 0.5
    """The gradients of policy and value are each scaled down to this norm, if longer."""


class IMPALA(Algorithm):
    """IMPALA, importance weighted actor-learner architecture (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561).

    The actors' policy mu is some updates behind the learner's pi. V-trace corrects for that by ratios pi/mu,
    bounded; it gives targets v of the value V and advantages A. With A normalised in the batch, one step of Adam on

        mean over valid steps of   - A log pi(a|s)  +  value_cost / 2 (v - V(s))^2  -  entropy_cost H(pi(.|s))

    This is the mean, where the paper has the sum: learning rates, costs and clipping belong to the mean. Adam has
    beta1 = 0, as in SEED RL: gradients that come late and momentum would add up to oscillation.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`. Where it has `get_actor_params()` and `get_critic_params()`, too, the two learn at rates of
            their own.
        settings: only those about learning are read.
    """

    def __init__(self, model: Any, settings: ImpalaSettings) -> None:
        super().__init__(model)
        self.settings = settings
        self.distribution = distribution_of(model)
        self.scale_reward = ReturnScaler()
        self.optimizer = torch.optim.Adam(_parameter_groups(model, settings), betas=(0.0, 0.999), eps=1e-5)
        self.env_steps = 0
        self.n_updates = 0

    def predict(self, obs: Tensor) -> Tensor:
        """Return the likeliest actions (B, ...)."""
        return self.distribution(self.model.policy(obs)).mode()

    def sample(self, obs: Tensor) -> Tensor:
        """Return actions (B, ...) drawn from the policy."""
        return self.distribution(self.model.policy(obs)).sample()

    def learn(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """Make one update from a rollout, columns (T, B, ...) as in `collector.py`; return losses and measures."""
        settings, valid = self.settings, batch["valid"]
        remaining = max(0.0, 1.0 - self.env_steps / settings.total_steps)

        # What the learner makes of the actors' steps
        params, value, next_value = evaluate(self.model, batch)  # (T, B, P), (T, B), (T, B)
        pi, mu = self.distribution(params), self.distribution(batch["behaviour_logits"])
        log_prob = pi.log_prob(batch["action"])  # (T, B)
        log_ratio = log_prob.detach() - batch["behaviour_log_prob"]  # (T, B)

        # Targets and advantages
        rows = Rows(self.scale_reward(batch), batch["terminated"], batch["truncated"], valid)
        bounds = (settings.gamma, settings.lambda_, settings.rho_bar, settings.c_bar)
        target, advantage = vtrace(rows, value.detach(), next_value, log_ratio, *bounds)
        adv = _normalized(advantage[valid])  # (number of valid steps,)

        # Losses
        policy_loss = -(adv * log_prob[valid]).mean()
        value_loss = 0.5 * (target - value)[valid].square().mean()
        entropy = pi.entropy()[valid].mean()
        loss = policy_loss + settings.value_cost * value_loss - settings.entropy_cost * remaining * entropy

        # One step of Adam at the rates of the schedule
        grad_norm = self._step(loss, remaining)
        update_statistics(self.model, batch)
        self.env_steps += adv.numel()
        self.n_updates += 1
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "kl": mu.kl(pi)[valid].mean().item(),
            "grad_norm": grad_norm,
        }

    def _step(self, loss: Tensor, remaining: float) -> float:
        """Make a step against the loss; return the norm of the first group's gradient before clipping."""
        self.optimizer.zero_grad()
        loss.backward()
        norms = []
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * remaining
            norms.append(nn.utils.clip_grad_norm_(group["params"], self.settings.max_grad_norm))
        self.optimizer.step()
        return norms[0].item()


def _parameter_groups(model: Any, settings: ImpalaSettings) -> list[dict[str, Any]]:
    """Return what Adam wants: one group for policy and one for value, or one for all if they share layers."""
    if not hasattr(model, "get_critic_params"):
        return [{"params": list(model.parameters()), "base_lr": settings.learning_rate}]
    return [
        {"params": list(model.get_actor_params()), "base_lr": settings.learning_rate},
        {"params": list(model.get_critic_params()), "base_lr": settings.value_learning_rate},
    ]


def _normalized(advantage: Tensor) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1; a single one becomes 0."""
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


ENTRY = Entry(
    name="impala",
    settings=ImpalaSettings,
    algorithm=IMPALA,
    wiring=Trajectories,
    make_model=actor_critic,
    actions=frozenset({"discrete", "multi_discrete", "multi_binary", "box"}),
    tuned={"CartPole-v1": {"reward_scale": 0.1}, "ALE/*": {"clip_reward": True}},
)
