"""parl_lite: a ZeroMQ actor-learner cluster framework for reinforcement learning in PyTorch."""

from parl_lite.version import __version__

__all__ = ["__version__"]
