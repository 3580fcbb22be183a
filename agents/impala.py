"""IMPALA: an actor-critic that learns from rollouts of slightly older policies. Knows nothing of actors and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from parl_lite.algorithm import Algorithm

from .bounds import Fraction, NotNegative, Positive
from .distributions import distribution_of
from .models import actor_critic
from .normalize import ReturnScaler, update_statistics
from .on_policy import normalized
from .optimizers import Adam
from .registry import Entry
from .returns import Rows, vtrace
from .settings import RunSettings, TrajectorySettings
from .unrolling import evaluate
from .wirings.trajectories import Trajectories


@dataclass(frozen=True, kw_only=True)
class VTraceLearning(RunSettings):
    """Learning by V-trace."""

    learning_rate: NotNegative = 2e-3
    """Learning rate of the policy, for Adam and the mean loss; falls linearly to zero at total_steps."""
    value_learning_rate: NotNegative = 5e-3
    """Learning rate of the value, likewise; not used by models in which both share layers."""
    adam_epsilon: Positive = 1e-5
    """Epsilon of Adam, whose beta1 is 0."""
    lambda_: Fraction = 0.95
    """Weight of longer traces in V-trace: 1 is the paper's, less has less variance."""
    rho_bar: Positive = 1.0
    """Bound of the importance ratio of a step: which policy the value is of."""
    c_bar: Positive = 1.0
    """Bound of the importance ratios along a trace: speed against variance; not above rho_bar."""
    normalize_advantage: bool = True
    """Advantages have mean 0 and standard deviation 1 in each batch; the paper's have not."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus; falls linearly to zero at total_steps."""
    value_cost: NotNegative = 0.5
    """Weight of half the squared error of the value."""
    max_grad_norm: NotNegative = 0.5
    """The gradients of policy and value are each scaled down to this norm, if longer; 0: never."""


@dataclass(frozen=True, kw_only=True)
class ImpalaSettings(VTraceLearning, TrajectorySettings):
    """IMPALA."""


class IMPALA(Algorithm):
    """IMPALA, importance weighted actor-learner architecture (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561).

    The actors' policy mu is some updates behind the learner's pi. V-trace corrects for that by ratios pi/mu,
    bounded; it gives targets v of the value V and advantages A. One step of Adam on

        mean over valid steps of   - A log pi(a|s)  +  value_cost / 2 (v - V(s))^2  -  entropy_cost H(pi(.|s))

    This is the mean, where the paper has the sum: learning rates, costs and clipping belong to the mean. Adam with
    beta1 = 0, as in SEED RL, is the paper's RMSProp with its first steps corrected: gradients that come late and
    momentum would add up to oscillation. The paper's deep network is network = "impala" with lstm_size = 256.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`. Where it has `get_actor_params()` and `get_critic_params()`, too, the two learn at rates of
            their own.
        settings: only those about learning are read.
    """

    def __init__(self, model: Any, settings: VTraceLearning) -> None:
        super().__init__(model)
        self.settings = settings
        self.distribution = distribution_of(model)
        self.scale_reward = ReturnScaler()
        self.optimizer = Adam(_parameter_groups(model, settings), betas=(0.0, 0.999), eps=settings.adam_epsilon)
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
        adv = advantage[valid]  # (number of valid steps,)
        adv = normalized(adv) if settings.normalize_advantage else adv

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
            norms.append(nn.utils.clip_grad_norm_(group["params"], self.settings.max_grad_norm or float("inf")))
        self.optimizer.step()
        return norms[0].item()


def _parameter_groups(model: Any, settings: VTraceLearning) -> list[dict[str, Any]]:
    """Return what Adam wants: one group for policy and one for value, or one for all if they share layers."""
    if not hasattr(model, "get_critic_params"):
        return [{"params": list(model.parameters()), "base_lr": settings.learning_rate}]
    return [
        {"params": list(model.get_actor_params()), "base_lr": settings.learning_rate},
        {"params": list(model.get_critic_params()), "base_lr": settings.value_learning_rate},
    ]


CARTPOLE = {"reward_scale": 0.1}
ATARI = {
    "total_steps": 10_000_000,
    "unroll_length": 20,
    "learning_rate": 6e-4,
    "lambda_": 1.0,
    "clip_reward": True,
    "life_loss": True,
}

ENTRY = Entry(
    name="impala",
    settings=ImpalaSettings,
    algorithm=IMPALA,
    wiring=Trajectories,
    make_model=actor_critic,
    tuned={"CartPole-v1": CARTPOLE, "ALE/*": ATARI},
)
