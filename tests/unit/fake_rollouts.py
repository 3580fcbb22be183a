"""Rollouts of made-up environments in each autoreset mode, and a plain log of what happened in them to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

MODES = ("next_step", "same_step")
"""What a rollout looks like; DISABLED looks like SAME_STEP."""


@dataclass
class Step:
    """One step as it happened."""

    obs: Any
    action: int
    reward: float
    terminated: bool
    truncated: bool
    next_obs: Any


@dataclass
class FakeEnvs:
    """Environments with episodes of random lengths whose observations are never the same twice.

    kind: "vector" (2,) float32; "stack" (4, 2, 3) uint8 frames; "dict" {"image": stack, "speed": (1,) float32}.
    padding: how the stack of a first observation begins: "repeat", "zeros" or "history" (frames of their own).
    """

    seed: int
    n_envs: int = 2
    mode: str = "next_step"
    kind: str = "vector"
    padding: str = "repeat"
    longest: int = 6
    steps: list[list[Step]] = field(default_factory=list)
    """The log: of each environment all steps, in order."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.n_obs = 0
        self.steps = [[] for _ in range(self.n_envs)]
        self.left = [0] * self.n_envs
        self.resetting = [False] * self.n_envs
        self.obs = [self.first(b) for b in range(self.n_envs)]
        self.begins = [True] * self.n_envs

    def first(self, b: int) -> Any:
        self.left[b] = int(self.random.integers(1, self.longest + 1))
        image = np.stack([self.frame()] * 4)
        if self.padding == "zeros":
            image[:3] = 0
        if self.padding == "history":
            image = np.stack([self.frame() for _ in range(4)])
        return self.look(image)

    def frame(self) -> np.ndarray:
        return self.random.integers(0, 256, (2, 3)).astype(np.uint8)

    def next(self, obs: Any) -> Any:
        image = obs["image"] if self.kind == "dict" else obs
        return self.look(np.concatenate([image[1:], self.frame()[None]]) if self.kind != "vector" else None)

    def look(self, image: Any) -> Any:
        self.n_obs += 1
        if self.kind == "vector":
            return np.array([self.n_obs, self.seed], np.float32)
        return image if self.kind == "stack" else {"image": image, "speed": np.array([self.n_obs], np.float32)}

    def rollout(self, n_steps: int) -> dict[str, Any]:
        """Go on for so many vector steps."""
        rows = [[self.step(b) for b in range(self.n_envs)] for _ in range(n_steps)]
        obs = [[row["obs"] for row in step] for step in rows] + [self.obs]
        first = [[row["first"] for row in step] for step in rows] + [self.begins]
        columns = {
            "obs": stack([stack(step) for step in obs]),
            "first": np.array(first),
            "action": np.array([[row["action"] for row in step] for step in rows], np.int64),
            "reward": np.array([[row["reward"] for row in step] for step in rows], np.float32),
        }
        for name in ("terminated", "truncated", "valid"):
            columns[name] = np.array([[row[name] for row in step] for step in rows])
        finals = [row["final"] for step in rows for row in step]
        if self.mode == "same_step":
            columns["final_row"] = np.array([i for i, final in enumerate(finals) if final is not None], np.int64)
            kept = [final for final in finals if final is not None]
            columns["final_obs"] = stack(kept) if kept else empty(columns["obs"])
        return columns

    def step(self, b: int) -> dict[str, Any]:
        obs, action, first = self.obs[b], int(self.random.integers(5)), self.begins[b]
        row = {"obs": obs, "action": action, "reward": 0.0, "terminated": False, "truncated": False, "final": None}
        if self.resetting[b]:
            self.resetting[b], self.obs[b], self.begins[b] = False, self.first(b), True
            return {**row, "valid": False, "first": first}
        self.left[b] -= 1
        reward, following = float(self.random.integers(1, 100)), self.next(obs)
        ends = self.left[b] == 0
        terminated = ends and bool(self.random.integers(2))
        self.steps[b].append(Step(obs, action, reward, terminated, ends and not terminated, following))
        self.obs[b], self.begins[b] = following, False
        if ends and self.mode == "next_step":
            self.resetting[b] = True
        elif ends:
            row["final"] = following
            self.obs[b], self.begins[b] = self.first(b), True
        flags = {"terminated": terminated, "truncated": ends and not terminated}
        return {**row, **flags, "reward": reward, "valid": True, "first": first}

    def windows(self, n: int, gamma: float) -> list[dict[str, Any]]:
        """Return the n-step transition of each step in the log, by the definition."""
        return [window(steps, i, n, gamma) for steps in self.steps for i in range(len(steps))]


def window(steps: list[Step], i: int, n: int, gamma: float) -> dict[str, Any]:
    reward, k = 0.0, 0
    while True:
        step = steps[i + k]
        reward += gamma**k * step.reward
        k += 1
        if k == n or step.terminated or step.truncated or i + k == len(steps):
            break
    discount = 0.0 if step.terminated else gamma**k
    start = steps[i]
    return {"obs": start.obs, "action": start.action, "reward": reward, "discount": discount, "next_obs": step.next_obs}


def stack(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: np.stack([value[name] for value in values]) for name in values[0]}
    return np.stack(values)


def empty(obs: Any) -> Any:
    """Return no final observations, for obs (T + 1, B, ...)."""
    if isinstance(obs, dict):
        return {name: empty(array) for name, array in obs.items()}
    return np.zeros((0, *obs.shape[2:]), obs.dtype)


def key(obs: Any) -> bytes:
    """Return what tells an observation from all others."""
    return b"".join(obs[name].tobytes() for name in sorted(obs)) if isinstance(obs, dict) else obs.tobytes()
