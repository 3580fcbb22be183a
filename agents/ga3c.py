"""GA3C: A3C whose actors ask one process for their actions, and send it what came of them. Knows nothing of clusters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .a3c import A3C, A3CLearning
from .bounds import Count, NotNegative, Positive
from .distributions import Categorical
from .models import actor_critic
from .registry import DISCRETE_ACTIONS, Entry
from .settings import CentralSettings
from .wirings.central import Central


@dataclass(frozen=True, kw_only=True)
class GA3CSettings(A3CLearning, CentralSettings):
    """GA3C."""

    envs_per_actor: Count = 8
    learning_rate: Positive = 3e-4
    max_grad_norm: NotNegative = 0.0
    value_cost: NotNegative = 1.0
    log_epsilon: Positive = 1e-6
    """Added to probabilities before their logarithm is taken."""


class GA3C(A3C):
    """GA3C, hybrid CPU/GPU A3C (Babaeizadeh et al. 2017, https://arxiv.org/abs/1611.06256).

    One model acts for all and learns, so that there are no copies of it. Between acting and learning, it may have made
    some updates: the policy lag. Then an action may have become so unlikely that the logarithm of its probability, and the
    gradient, know no bounds. Therefore log pi is replaced by log(pi + log_epsilon) in A3C's loss, in both places.

    Args:
        model: has `policy(obs)`, logits of discrete actions, and `value(obs)`, or `unroll` (see `unrolling.py`).
        settings: only those about learning are read.
    """

    settings: GA3CSettings

    def _terms(self, pi: Categorical, action: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return log(pi(a|s) + epsilon) of actions, and - sum of pi log(pi + epsilon), both (T, B)."""
        probs = pi.log_probs.exp()  # (T, B, A)
        logs = (probs + self.settings.log_epsilon).log()
        return logs.gather(-1, action.unsqueeze(-1)).squeeze(-1), -(probs * logs).sum(dim=-1)


ENTRY = Entry(
    name="ga3c",
    settings=GA3CSettings,
    algorithm=GA3C,
    wiring=Central,
    make_model=actor_critic,
    actions=DISCRETE_ACTIONS,
    tuned={
        "CartPole-v1": {"unroll_length": 32, "learning_rate": 5e-3, "reward_scale": 0.1, "rmsprop_epsilon": 1e-3},
        "ALE/*": {"total_steps": 10_000_000, "n_actors": 4, "clip_reward": True, "life_loss": True},
    },
)
