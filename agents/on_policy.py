"""What PPO, A2C, VPG and TRPO share: advantages, minibatches, acting. Knows Algorithm, models and torch; no actors, no clusters.

batch     columns (T, B, ...) of the policy that learns, as in `collector.py`
rollout   the same with value, advantage and target of the value, (T, B)
steps     N steps of it that are learned from together, (N, ...), without the rows that are none
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parl_lite.algorithm import Algorithm
from parl_lite.errors import ParlError

from .collector import select_envs
from .distributions import distribution_of
from .normalize import ReturnScaler, update_statistics
from .returns import Rows, gae
from .targets import descend
from .trees import Tree, map_tree, row
from .unrolling import evaluate, unroll

Rollout = dict[str, Any]


class Inputs(NamedTuple):
    """What a model looks at: N observations, or of a recurrent model rollouts in which there are N steps."""

    obs: Tree
    """(N, *shape); recurrent: (T, B, *shape)."""
    first: Any = None
    """Recurrent: an episode begins here, (T, B) bool."""
    state: Tree = ()
    """Recurrent: the state before the first row, (B, ...)."""
    valid: Any = None
    """Recurrent: which rows are steps, (T, B) bool."""


class Steps(NamedTuple):
    """N steps to learn from."""

    inputs: Inputs
    action: Tensor
    """(N, ...)."""
    params: Tensor
    """Of the distribution that the action was drawn from, (N, P)."""
    log_prob: Tensor
    """Of the action there, (N,)."""
    value: Tensor
    """What the value was before this update, (N,)."""
    advantage: Tensor
    """(N,)."""
    target: Tensor
    """Of the value, (N,)."""


class OnPolicy(Algorithm):
    """Base of the algorithms that learn from rollouts of the very policy that learns.

    Args:
        model: has `policy(obs)` and `value(obs)`, or `unroll` (see `unrolling.py`), and for other than discrete actions
            a `distribution`.
        settings: at least gamma, lambda_ and total_steps; for `set_learning_rate` also anneal.

    Attributes:
        env_steps: steps learned from so far; several learners are told of each other's.
        n_updates: batches learned from.
    """

    def __init__(self, model: Any, settings: Any) -> None:
        super().__init__(model)
        self.settings = settings
        self.distribution = distribution_of(model)
        self.scale_reward = ReturnScaler()
        self.env_steps = 0
        self.n_updates = 0

    def predict(self, obs: Tree) -> Tensor:
        """Return the likeliest actions (B, ...)."""
        return self.distribution(self.model.policy(obs)).mode()

    def sample(self, obs: Tree) -> Tensor:
        """Return actions (B, ...) drawn from the policy."""
        return self.distribution(self.model.policy(obs)).sample()

    @property
    def remaining(self) -> float:
        """Part of the run that is left, from 1 to 0."""
        return float(max(0.0, 1.0 - self.env_steps / self.settings.total_steps))

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
        """Set the learning rate to `learning_rate`; where the settings anneal it, to the part of that which the run has left."""
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * (self.remaining if self.settings.anneal else 1.0)

    def advantages(self, batch: Rollout, value: Tensor, next_value: Tensor) -> Tensor:
        """Return generalised advantage estimates (T, B) without gradients, of rewards scaled as the settings say.

        Call it once for each new batch.
        """
        rows = Rows(self.scale_reward(batch), batch["terminated"], batch["truncated"], batch["valid"])
        return gae(rows, value.detach(), next_value, self.settings.gamma, self.settings.lambda_)

    @torch.no_grad()
    def rollout_of(self, batch: Rollout) -> Rollout:
        """Return the batch with values, advantages and targets; call it once for each new batch."""
        _, value, next_value = evaluate(self.model, batch)
        advantage = self.advantages(batch, value, next_value)
        return {**batch, "value": value, "advantage": advantage, "target": value + advantage}

    def count(self, batch: Rollout) -> None:
        """Note that a batch was learned from: statistics of observations change together with the policy, after it has."""
        update_statistics(self.model, batch)
        self.env_steps += int(batch["valid"].sum())
        self.n_updates += 1


def forward(model: Any, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return parameters (N, P) of the policy and values (N,) of N steps."""
    params, value, _ = unroll(model, inputs.obs, inputs.first, inputs.state)
    return (params, value) if inputs.valid is None else (params[inputs.valid], value[inputs.valid])


def fit_value(model: Any, optimizer: torch.optim.Optimizer, rollout: Rollout, n_epochs: int, n_minibatches: int) -> float:
    """Fit the value alone, of a model that is not recurrent; return half the mean squared error on the way."""
    losses = []
    for steps in epochs(rollout, n_epochs, n_minibatches):
        loss = 0.5 * (model.value(steps.inputs.obs) - steps.target).square().mean()
        descend(optimizer, loss)
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def epochs(rollout: Rollout, n: int, n_minibatches: int) -> Iterator[Steps]:
    """Yield all steps of a rollout `n` times, each time in minibatches of their own."""
    for _ in range(n):
        yield from minibatches(rollout, n_minibatches)


def minibatches(rollout: Rollout, n: int) -> Iterator[Steps]:
    """Yield all steps of a rollout once, in `n` random parts of equal size; of a recurrent model, by environments."""
    if "state" in rollout:
        envs = torch.randperm(rollout["valid"].shape[1], device=rollout["valid"].device)
        yield from (_recurrent_steps(select_envs(rollout, chosen)) for chosen in envs.tensor_split(min(n, len(envs))))
        return
    rows = _step_rows(rollout)
    rows = rows[torch.randperm(len(rows), device=rows.device)]
    yield from (_steps(rollout, chosen) for chosen in rows.tensor_split(min(n, len(rows))))


def all_steps(rollout: Rollout) -> Steps:
    """Return all steps of a rollout of a model that is not recurrent, in their order."""
    return _steps(rollout, _step_rows(rollout))


def normalized(advantage: Tensor) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1; a single one becomes 0."""
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


def means(measures: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """Return the mean of each measure over some minibatches."""
    return {name: torch.stack([each[name].detach() for each in measures]).mean().item() for name in measures[0]}


def separate_parameters(model: Any, algorithm: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of the policy and those of the value; raises ParlError where layers are shared."""
    if not (hasattr(model, "get_actor_params") and hasattr(model, "get_critic_params")):
        raise ParlError(
            f"{algorithm} updates policy and value each by itself, but in this {type(model).__name__} they share layers: "
            f"leave out shared, lstm_size and networks for images, give the model get_actor_params() and "
            f"get_critic_params(), or choose ppo."
        )
    return list(model.get_actor_params()), list(model.get_critic_params())


def _step_rows(rollout: Rollout) -> Tensor:
    """Return which of the T * B rows are steps, (N,) int64."""
    (rows,) = torch.nonzero(rollout["valid"].flatten(), as_tuple=True)
    return rows


def _steps(rollout: Rollout, rows: Tensor) -> Steps:
    """Return the steps of some of the T * B rows."""
    obs = map_tree(lambda leaf: leaf[:-1].flatten(0, 1)[rows], rollout["obs"])
    return Steps(Inputs(obs), *(column.flatten(0, 1)[rows] for column in _columns(rollout)))


def _recurrent_steps(rollout: Rollout) -> Steps:
    """Return all steps of a rollout of a recurrent model."""
    valid = rollout["valid"]
    inputs = Inputs(row(rollout["obs"], slice(None, -1)), rollout["first"][:-1], rollout["state"], valid)
    return Steps(inputs, *(column[valid] for column in _columns(rollout)))


def _columns(rollout: Rollout) -> list[Tensor]:
    """Return the columns (T, B, ...) of `Steps`, in its order."""
    names = ("action", "behaviour_logits", "behaviour_log_prob", "value", "advantage", "target")
    return [rollout[name] for name in names]
