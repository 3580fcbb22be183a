"""Policies and values along rollouts, of models that are recurrent and of models that are not. Knows tensors and trees.

A model that shares layers between policy and value, or is recurrent, has

    unroll(obs, first, state) -> (params (T, B, P), value (T, B), state)     obs (T, B, *shape), first (T, B) bool
    initial_state(n)          -> state, a tree of tensors (n, ...); () where it is not recurrent

and zeroes its state wherever `first` is True, before it takes in that row. For any other model its `policy(obs)` and
`value(obs)` do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .returns import next_values
from .trees import Tree, map_tree, row


class Unrolled(NamedTuple):
    """What a model makes of a rollout."""

    params: Tensor
    """Parameters of the policy (T, B, P), for `distribution_of(model)`."""
    value: Tensor
    """Values of obs[t] (T, B)."""
    next_value: Tensor
    """Values of the observations that the steps led to (T, B), final ones included; without gradients."""


def initial_state(model: Any, n: int) -> Tree:
    """Return the recurrent state (n, ...) before an episode; () where there is none."""
    return model.initial_state(n) if hasattr(model, "initial_state") else ()


def unroll(model: Any, obs: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tensor, Tree]:
    """Return (params (T, B, P), value (T, B), state after the last row) for observations (T, B, *shape)."""
    if hasattr(model, "unroll"):
        params, value, state = model.unroll(obs, first, state)
        return params, value, state
    return model.policy(obs), model.value(obs), state


def policy_step(model: Any, obs: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
    """Return (params (B, P), state) for one row of observations (B, *shape)."""
    if state == ():
        return model.policy(obs), state
    params, _, state = model.unroll(row(obs, None), first[None], state)
    return params[0], state


def evaluate(model: Any, batch: dict[str, Any]) -> Unrolled:
    """Return what the model makes of a rollout, columns (T, B, ...) as tensors, listed in `collector.py`."""
    first = batch["first"] if "first" in batch else batch["reward"].new_zeros(1)  # feed-forward models do not look at it
    params, value, _ = unroll(model, batch["obs"], first, batch.get("state", ()))
    following = next_values(value.detach())
    if "final_obs" in batch and len(batch["final_row"]):
        with torch.no_grad():
            following = next_values(value.detach(), _final_values(model, batch), batch["final_row"])
    return Unrolled(params[:-1], value[:-1], following)


def _final_values(model: Any, batch: dict[str, Any]) -> Tensor:
    """Return the values (K,) of final observations, which SAME_STEP and DISABLED autoreset keep apart."""
    if batch.get("state", ()) == ():
        value: Tensor = model.value(batch["final_obs"])
        return value
    return _recurrent_final_values(model, batch)


def _recurrent_final_values(model: Any, batch: dict[str, Any]) -> Tensor:
    """Return the same for a recurrent model: unroll up to each row with final observations, then over them."""
    n_envs, state, start = batch["reward"].shape[1], batch["state"], 0
    step, env = batch["final_row"] // n_envs, batch["final_row"] % n_envs
    values = torch.empty(len(step), device=step.device)
    for t in step.unique(sorted=True).tolist():
        _, _, state = model.unroll(row(batch["obs"], slice(start, t + 1)), batch["first"][start : t + 1], state)
        (chosen,) = torch.nonzero(step == t, as_tuple=True)
        going_on = torch.zeros(1, len(chosen), dtype=torch.bool, device=step.device)
        final_obs = map_tree(lambda leaf, chosen=chosen: leaf[chosen][None], batch["final_obs"])
        _, value, _ = model.unroll(final_obs, going_on, row(state, env[chosen]))
        values[chosen], start = value[0], t + 1
    return values
