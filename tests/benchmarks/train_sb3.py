"""Stable-Baselines3's side of `train.py`: PPO with one pass over each step. Prints one JSON line, and knows nothing of ours.

python tests/benchmarks/train_sb3.py TASK --seconds S
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial

import ale_py
import gymnasium
import numpy as np
import torch
from footprint import WARM_UP, memory_mb, processor_seconds
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

gymnasium.register_envs(ale_py)


def make_pong(size: int) -> gymnasium.Env:
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    env = gymnasium.wrappers.AtariPreprocessing(env, screen_size=size)
    env = gymnasium.wrappers.FrameStackObservation(env, 4)
    return gymnasium.wrappers.TransformReward(env, np.sign)


def make_model(task: str) -> PPO:
    once = {"n_epochs": 1, "device": "cpu", "seed": 1}
    if task == "cartpole":
        envs = DummyVecEnv([partial(gymnasium.make, "CartPole-v1")] * 32)
        return PPO("MlpPolicy", envs, n_steps=32, batch_size=1024, **once)
    envs = SubprocVecEnv([partial(make_pong, int(task.removeprefix("pong")))] * 8, start_method="forkserver")
    return PPO("CnnPolicy", envs, n_steps=128, batch_size=256, **once)


class Watch(BaseCallback):
    """Ends the run in time and notes how many steps there were."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.begin = time.perf_counter()
        self.marks: list[tuple[float, int, float]] = []
        self.memory = 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # an update is over
        now = time.perf_counter() - self.begin
        if now >= WARM_UP:
            self.marks.append((now, self.num_timesteps, processor_seconds(os.getpid())))
        if self.marks and now - self.marks[0][0] >= self.seconds:
            self.memory = memory_mb(os.getpid())
            raise StopIteration


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    torch.set_num_threads(1 if chosen.task == "cartpole" else len(os.sched_getaffinity(0)))  # whichever is faster
    model, watch = make_model(chosen.task), Watch(chosen.seconds)
    try:
        model.learn(10**9, callback=watch)
    except StopIteration:
        pass
    finally:
        model.get_env().close()
    (began, steps_before, spent_before), (ended, steps_after, spent_after) = watch.marks[0], watch.marks[-1]
    n_steps = steps_after - steps_before
    figures = {"steps_per_second": n_steps / (ended - began), "processor_us": 1e6 * (spent_after - spent_before) / n_steps}
    print(json.dumps({**figures, "memory_mb": watch.memory}))


if __name__ == "__main__":
    main()
