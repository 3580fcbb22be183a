"""parl_lite: a ZeroMQ actor-learner cluster framework for reinforcement learning in PyTorch.

import parl_lite as parl
parl.connect()                     # a private cluster on this machine; connect("HOST:8010") joins a running one

@parl.remote_class
class Actor: ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parl_lite.client import cluster_info, connect, disconnect
from parl_lite.errors import (
    ActorLostError,
    AuthenticationError,
    NotConnectedError,
    OutOfMemoryError,
    ParlError,
    RemoteError,
    ResourceError,
    SerializationError,
    VersionError,
)
from parl_lite.futures import Future, as_completed, get, wait
from parl_lite.remote import remote_class
from parl_lite.version import __version__

if TYPE_CHECKING:
    from parl_lite.agent import Agent as Agent
    from parl_lite.algorithm import Algorithm as Algorithm
    from parl_lite.model import Model as Model
    from parl_lite.rollout import Rollout as Rollout

_LAZY = {"Agent": "agent", "Algorithm": "algorithm", "Model": "model", "Rollout": "rollout"}
"""Loaded on first use, so that master, worker and command line start without torch."""

__all__ = [
    "ActorLostError",
    "Agent",
    "Algorithm",
    "AuthenticationError",
    "Future",
    "Model",
    "NotConnectedError",
    "OutOfMemoryError",
    "ParlError",
    "RemoteError",
    "ResourceError",
    "Rollout",
    "SerializationError",
    "VersionError",
    "__version__",
    "as_completed",
    "cluster_info",
    "connect",
    "disconnect",
    "get",
    "remote_class",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'parl_lite' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"parl_lite.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
