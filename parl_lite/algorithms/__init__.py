"""PARL's algorithms by PARL's names and arguments, each for a model of the user's. Names only; knows nothing of clusters."""

from __future__ import annotations

from typing import NoReturn

from parl_lite.algorithms.a2c import A2C as A2C
from parl_lite.algorithms.ddpg import DDPG as DDPG
from parl_lite.algorithms.ddqn import DDQN as DDQN
from parl_lite.algorithms.dqn import DQN as DQN
from parl_lite.algorithms.impala import IMPALA as IMPALA
from parl_lite.algorithms.policy_gradient import PolicyGradient as PolicyGradient
from parl_lite.algorithms.ppo import PPO as PPO
from parl_lite.algorithms.sac import SAC as SAC
from parl_lite.algorithms.td3 import TD3 as TD3

__all__ = ["A2C", "DDPG", "DDQN", "DQN", "IMPALA", "PPO", "SAC", "TD3", "PolicyGradient"]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"module 'parl_lite.algorithms' has no attribute {name!r}; it has {', '.join(__all__)}")
