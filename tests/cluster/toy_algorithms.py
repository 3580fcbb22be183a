"""A small policy gradient for tests of wirings: it learns a little, counts, and can give gradients away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from parl_lite.agents.models import actor_critic
from parl_lite.agents.registry import Entry
from parl_lite.agents.settings import CentralSettings, GradientSettings, InStepSettings, TrajectorySettings
from parl_lite.agents.unrolling import evaluate
from parl_lite.agents.wirings.central import Central
from parl_lite.agents.wirings.gradients import Gradients
from parl_lite.agents.wirings.in_step import InStep
from parl_lite.agents.wirings.trajectories import Trajectories
from parl_lite.algorithm import Algorithm


class Toy(Algorithm):
    """One step of SGD on the policy gradient of the rewards themselves."""

    def __init__(self, model: Any, settings: Any) -> None:
        super().__init__(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.env_steps = 0
        self.n_updates = 0

    def learn(self, batch: dict[str, Any]) -> dict[str, float]:
        gradients, metrics = self.compute_gradients(batch)
        self.env_steps += int(batch["valid"].sum())
        return {**metrics, **self.apply_gradients(gradients)}

    def compute_gradients(self, batch: dict[str, Any]) -> tuple[list[torch.Tensor], dict[str, float]]:
        params, value, _ = evaluate(self.model, batch)
        log_prob = self.model.distribution(params).log_prob(batch["action"])
        loss = (-(batch["reward"] * log_prob) + (value - batch["reward"]).square())[batch["valid"]].mean()
        gradients = torch.autograd.grad(loss, list(self.model.parameters()))
        return list(gradients), {"loss": loss.item()}

    def apply_gradients(self, gradients: list[torch.Tensor]) -> dict[str, float]:
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.n_updates += 1
        return {"n_updates": self.n_updates}


SMALL = {"n_actors": 2, "envs_per_actor": 2, "unroll_length": 8, "hidden_size": 8}


@dataclass(frozen=True, kw_only=True)
class ToyInStep(InStepSettings):
    """Toy."""


@dataclass(frozen=True, kw_only=True)
class ToyTrajectories(TrajectorySettings):
    """Toy."""


@dataclass(frozen=True, kw_only=True)
class ToyGradients(GradientSettings):
    """Toy."""


@dataclass(frozen=True, kw_only=True)
class ToyCentral(CentralSettings):
    """Toy."""


def entry(settings: type, wiring: Any) -> Entry:
    return Entry("toy", settings, Toy, wiring, actor_critic)


IN_STEP = entry(ToyInStep, InStep)
TRAJECTORIES = entry(ToyTrajectories, Trajectories)
GRADIENTS = entry(ToyGradients, Gradients)
CENTRAL = entry(ToyCentral, Central)
ENTRIES = {"in_step": IN_STEP, "trajectories": TRAJECTORIES, "gradients": GRADIENTS, "central": CENTRAL}
