"""How algorithms that learn from replay act: policies for collectors, and how much they explore. Knows no algorithm by name.

A policy here is what `collector.py` asks for, and besides

    explore(env_steps, index, n)   acts from now on as the schedules want after so many steps of the run;
                                   its environments are those with the numbers `index` (B,) among all n of the run
    finish(columns)                adds to a rollout what only the policy knows
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl_lite.agent import to_tensors

from .collector import Columns
from .exploration import epsilon_ladder
from .novelty import Novelty
from .policy_family import SlidingWindowUCB
from .schedules import Linear
from .trees import Array, Tree, map_tree, row


class StepPolicy:
    """Acts by one observation at a time, with `algorithm.sample(obs)`, greedy with `algorithm.predict(obs)`.

    Args:
        algorithm: acts; its `epsilon` is set here.
        n_envs: B.
        greedy: without exploration; otherwise as at the end of the run, until `explore` is called.
    """

    squashes = False
    scales = False

    def __init__(self, algorithm: Any, n_envs: int, *, greedy: bool = False) -> None:
        self.algorithm = algorithm
        self.greedy = greedy
        self.device = next(algorithm.model.parameters()).device
        if not greedy:
            self.explore(algorithm.settings.total_steps, np.arange(n_envs), n_envs)

    def explore(self, env_steps: int, index: Array, n: int) -> None:
        """Set the probability of random actions."""
        self.algorithm.epsilon = epsilon_at(self.algorithm.settings, env_steps, index, n)

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...), and no parameters: (B, 0) float32."""
        with torch.inference_mode():
            action = self._act(to_tensors(obs, self.device)).cpu().numpy()
        return action, np.zeros((len(first), 0), dtype=np.float32)

    def log_prob(self, params: Array, action: Array) -> Array:
        """Return zeros (T, B) float32: nobody asks."""
        return np.zeros(params.shape[:2], dtype=np.float32)

    def state(self) -> Tree:
        """Return (): there is none."""
        return ()

    def finish(self, columns: Columns) -> None:
        """Add nothing."""

    def _act(self, obs: Tree) -> Tensor:
        action: Tensor = self.algorithm.predict(obs) if self.greedy else self.algorithm.sample(obs)
        return action


class SoftPolicy(StepPolicy):
    """The same where `algorithm.sample` explores by itself; actions are drawn uniformly for the first steps of a run."""

    _at_random = False

    def explore(self, env_steps: int, index: Array, n: int) -> None:
        """Decide whether the policy is asked at all."""
        self._at_random = env_steps < self.algorithm.settings.random_steps

    def _act(self, obs: Tree) -> Tensor:
        action = super()._act(obs)
        return self._any_like(action) if self._at_random else action

    def _any_like(self, action: Tensor) -> Tensor:
        """Return actions that are all equally likely."""
        return torch.randint_like(action, self.algorithm.model.n_actions)


class ContinuousPolicy(SoftPolicy):
    """The same for actions (B, D) in [-1, 1], which are stretched to the bounds."""

    scales = True

    def _any_like(self, action: Tensor) -> Tensor:
        return torch.rand_like(action) * 2 - 1


class MemoryPolicy(StepPolicy):
    """Acts with a memory: `algorithm.initial_state(n)`, `sample(obs, state, first)`, greedy `predict(obs, state, first)`."""

    def __init__(self, algorithm: Any, n_envs: int, *, greedy: bool = False) -> None:
        super().__init__(algorithm, n_envs, greedy=greedy)
        self._state = algorithm.initial_state(n_envs)

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...), and no parameters: (B, 0) float32."""
        act = self.algorithm.predict if self.greedy else self.algorithm.sample
        with torch.inference_mode():
            action, self._state = act(to_tensors(obs, self.device), self._state, torch.from_numpy(first).to(self.device))
        return action.cpu().numpy(), np.zeros((len(first), 0), dtype=np.float32)

    def rewarded(self, reward: Array) -> None:
        """Remember what the step brought, (B,) float32."""
        self._state["reward"] = torch.tensor(reward, device=self.device)

    def state(self) -> Tree:
        """Return a copy of the memory before the next row, a dict of (B, ...) arrays."""
        return map_tree(lambda leaf: leaf.cpu().numpy().copy(), self._state)


class FamilyPolicy(MemoryPolicy):
    """Acts as Agent57 does: a bandit chooses one of its policies for each episode, and what is new is rewarded.

    Rollouts get the columns policy int64, intrinsic_reward float32 and behaviour_log_prob float32, (T, B). Greedy, it is the
    policy that only exploits.
    """

    def __init__(self, algorithm: Any, n_envs: int, *, greedy: bool = False) -> None:
        super().__init__(algorithm, n_envs, greedy=greedy)
        settings = algorithm.settings
        how = {"window": settings.bandit_window, "bonus": settings.bandit_bonus, "epsilon": settings.bandit_epsilon}
        self.bandit = SlidingWindowUCB(settings.n_policies, **how, seed=0 if greedy else int(torch.randint(2**31, ())))
        self.novelty = Novelty(algorithm.model.novelty, n_envs, settings)
        self._policy = np.zeros(n_envs, dtype=np.int64)
        self._returns = np.full(n_envs, np.nan)
        self._rewards: list[Array] = []  # for what is new, of the step before each row
        self._known: Array | None = None  # the next of them

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B,), and their log-probabilities and policies (B, 2) float32."""
        if not self.greedy:
            self._choose(first)
        with torch.inference_mode():
            seen = to_tensors(obs, self.device)
            if self._known is None:
                self._judge(seen, first)
            self._known = None
            policy, begins = torch.from_numpy(self._policy).to(self.device), torch.from_numpy(first).to(self.device)
            epsilon = 0.0 if self.greedy else None
            action, log_prob, self._state = self.algorithm.sample(seen, self._state, begins, policy, epsilon)
        return action.cpu().numpy(), np.stack([log_prob.cpu().numpy(), self._policy.astype(np.float32)], axis=1)

    def rewarded(self, reward: Array) -> None:
        """Remember what the step brought, (B,) float32."""
        super().rewarded(reward)
        self._returns += reward

    def log_prob(self, params: Array, action: Array) -> Array:
        """Return log-probabilities (T, B) float32."""
        return params[..., 0]

    def finish(self, columns: Columns) -> None:
        """Add the columns; looks at the last observation already."""
        with torch.inference_mode():
            self._judge(to_tensors(row(columns["obs"], -1), self.device), columns["first"][-1])
        columns["policy"] = columns["behaviour_logits"][..., 1].astype(np.int64)
        columns["intrinsic_reward"] = np.stack(self._rewards[-len(columns["reward"]) :])
        self._rewards.clear()

    def _judge(self, obs: Tree, first: Array) -> None:
        """Find out how new the observations are that the step before led to."""
        self._known = self.novelty.reward(obs, first)
        if not self.greedy:
            self._rewards.append(self._known)
        self._state["intrinsic_reward"] = torch.from_numpy(self._known).to(self.device)

    def _choose(self, first: Array) -> None:
        """Choose a policy for each episode that begins, and learn from how the one before did."""
        for env in np.flatnonzero(first):
            if not np.isnan(self._returns[env]):
                self.bandit.update(int(self._policy[env]), float(self._returns[env]))
            self._policy[env], self._returns[env] = self.bandit.choose(), 0.0


def epsilon_at(settings: Any, env_steps: int, index: Array, n: int) -> float | Tensor:
    """Return the probability of a random action: of the ladder where the settings have one, else by the schedule."""
    if settings.noisy:
        return 0.0
    if hasattr(settings, "epsilon_base"):
        ladder = epsilon_ladder(index, n, settings.epsilon_base, settings.epsilon_exponent)
        return torch.as_tensor(ladder, dtype=torch.float32)
    fall = Linear(settings.epsilon_start, settings.epsilon_end, settings.exploration_fraction * settings.total_steps)
    return fall(env_steps)
