"""TRPO: the natural gradient, as far as a bound on the change of the policy allows. Knows nothing of actors and clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .bounds import Count, Fraction, NotNegative, Positive
from .models import actor_critic
from .on_policy import OnPolicy, Rollout, Steps, all_steps, fit_value, normalized, separate_parameters
from .registry import Entry
from .settings import InStepSettings
from .targets import adam
from .trees import Tree, row
from .wirings.in_step import InStep


@dataclass(frozen=True, kw_only=True)
class TRPOSettings(InStepSettings):
    """TRPO."""

    envs_per_actor: Count = 16
    unroll_length: Count = 32
    max_kl: Positive = 0.01
    """KL divergence of the new policy from the old one that an update may reach."""
    damping: NotNegative = 0.1
    """This times the identity is added to the Fisher matrix."""
    cg_steps: Count = 10
    """Iterations of the conjugate gradient."""
    backtracks: Count = 10
    """Shorter steps that are tried where a step breaks the bound or gains nothing; then there is none."""
    backtrack_ratio: Fraction = 0.8
    """How much shorter each is than the one before."""
    fisher_stride: Count = 1
    """The Fisher matrix is estimated from every so many steps: more is faster."""
    lambda_: Fraction = 0.97
    """Weight of longer sums in the advantage estimates: 0 the least variance, 1 the least bias."""
    value_learning_rate: Positive = 1e-3
    """Learning rate of the value, for Adam."""
    value_epochs: Count = 10
    """Passes over each batch to fit the value."""
    value_minibatches: Count = 4
    """Parts of equal size that the batch is divided into anew in each of them."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError that names the first field with an impossible value."""
        super().__post_init__()
        if self.n_learners > 1:
            raise ValueError(
                f"n_learners is {self.n_learners}: trpo makes its steps without gradients to average, leave it at 1."
            )


class TRPO(OnPolicy):
    """TRPO, trust region policy optimisation (Schulman et al. 2015, https://arxiv.org/abs/1502.05477).

    With the gradient g of the surrogate L = mean of pi(a|s) / pi_old(a|s) A and the Fisher matrix F of the policy, both at
    the old parameters, a step

        sqrt(2 max_kl / x F x) x     with     x = F^-1 g     by the conjugate gradient

    or the first of shorter ones in the same direction whose L is larger and whose mean KL(pi_old || pi) is at most max_kl.
    Then steps of Adam for the value. Advantages A are by GAE, normalised.

    Args:
        model: has `policy(obs)`, `value(obs)`, `get_actor_params()` and `get_critic_params()`, and for other than
            discrete actions a `distribution`.
        settings: only those about learning are read.

    Raises:
        ParlError: policy and value share layers.
    """

    settings: TRPOSettings

    def __init__(self, model: Any, settings: TRPOSettings) -> None:
        super().__init__(model, settings)
        self.actor, critic = separate_parameters(model, "trpo")
        self.value_optimizer = adam(critic, settings.value_learning_rate)

    def learn(self, batch: Rollout) -> dict[str, float]:
        """Learn from a rollout, columns (T, B, ...) as in `collector.py`; return losses and measures."""
        settings, rollout = self.settings, self.rollout_of(batch)
        measures = self._improve_policy(all_steps(rollout))
        value_loss = fit_value(self.model, self.value_optimizer, rollout, settings.value_epochs, settings.value_minibatches)
        self.count(batch)
        return {**measures, "value_loss": value_loss}

    def _improve_policy(self, steps: Steps) -> dict[str, float]:
        settings = self.settings
        steps = steps._replace(advantage=normalized(steps.advantage))

        # The direction of the natural gradient
        surrogate, _, entropy = self._surrogate(steps)
        gradient = parameters_to_vector(torch.autograd.grad(surrogate, self.actor))  # (n parameters,)
        fisher = self._fisher(steps.inputs.obs)
        direction = conjugate_gradient(fisher, gradient, settings.cg_steps)

        # The longest step that the bound allows, to second order; then shorter ones
        curvature = (direction @ fisher(direction)).clamp(min=1e-12)
        full_step = (2 * settings.max_kl / curvature).sqrt() * direction
        gain, kl, length = self._line_search(steps, full_step, surrogate.item())
        return {"surrogate_gain": gain, "kl": kl, "step_length": length, "entropy": entropy.item()}

    @torch.no_grad()
    def _line_search(self, steps: Steps, full_step: Tensor, surrogate: float) -> tuple[float, float, float]:
        """Make the first step that gains something within the bound; return gain, divergence and part of the full step."""
        settings, old = self.settings, parameters_to_vector(self.actor)
        for n in range(settings.backtracks):
            length = settings.backtrack_ratio**n
            vector_to_parameters(old + length * full_step, self.actor)
            new_surrogate, kl, _ = self._surrogate(steps)
            gain = new_surrogate.item() - surrogate
            if kl.item() <= settings.max_kl and gain > 0:
                return gain, kl.item(), length
        vector_to_parameters(old, self.actor)
        return 0.0, 0.0, 0.0

    def _surrogate(self, steps: Steps) -> tuple[Tensor, Tensor, Tensor]:
        """Return means over the steps: of what is maximised, of the divergence from the old policy, of the entropy."""
        pi = self.distribution(self.model.policy(steps.inputs.obs))
        ratio = (pi.log_prob(steps.action) - steps.log_prob).exp()  # (N,)
        kl = self.distribution(steps.params).kl(pi)  # (N,)
        return (ratio * steps.advantage).mean(), kl.mean(), pi.entropy().mean()

    def _fisher(self, obs: Tree) -> Callable[[Tensor], Tensor]:
        """Return what multiplies a vector by the Fisher matrix: the second derivative of the divergence, damped."""
        params = self.model.policy(row(obs, slice(None, None, self.settings.fisher_stride)))
        kl = self.distribution(params.detach()).kl(self.distribution(params)).mean()
        slope = parameters_to_vector(torch.autograd.grad(kl, self.actor, create_graph=True))

        def product(vector: Tensor) -> Tensor:
            curved = torch.autograd.grad(slope @ vector, self.actor, retain_graph=True)
            return parameters_to_vector(curved) + self.settings.damping * vector

        return product


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, n_steps: int, tolerance: float = 1e-10) -> Tensor:
    """Return x with A x = b, nearly, after `n_steps` or when |b - A x|^2 falls below the tolerance.

    Args:
        product: returns A v for v (n,); A is symmetric and positive definite.
        b: (n,).
    """
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    square = residual @ residual
    for _ in range(n_steps):
        if square < tolerance:
            break
        curved = product(direction)
        rate = square / (direction @ curved)
        x += rate * direction
        residual -= rate * curved
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return x


MUJOCO = {
    "total_steps": 1_000_000,
    "unroll_length": 64,
    "log_std": -0.5,
    "value_minibatches": 8,
    "normalize_obs": True,
    "normalize_reward": True,
}

ENTRY = Entry(
    name="trpo",
    settings=TRPOSettings,
    algorithm=TRPO,
    wiring=InStep,
    make_model=actor_critic,
    tuned={
        "CartPole-v1": {"value_learning_rate": 5e-3, "gamma": 0.98},
        **dict.fromkeys(("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5"), MUJOCO),
    },
)
