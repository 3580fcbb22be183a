"""Replay buffers: what actors saw, kept once and drawn again. Knows numpy, Arrow and the face of parl_lite; no torch."""

from __future__ import annotations

from .actor import Receipt, ReplayShard, Sample, Wait
from .buffer import ReplayBuffer
from .client import ReplayClient
from .offline import OfflineReplay, save_episodes
from .prioritized import PrioritizedSampler, importance_weights
from .rate_limiter import RateLimiter
from .sequences import SequenceReplay, mixed_priority
from .stacks import pack_frames
from .transitions import TransitionReplay
from .uniform import UniformSampler
from .writer import ReplayWriter

__all__ = [
    "OfflineReplay",
    "PrioritizedSampler",
    "RateLimiter",
    "Receipt",
    "ReplayBuffer",
    "ReplayClient",
    "ReplayShard",
    "ReplayWriter",
    "Sample",
    "SequenceReplay",
    "TransitionReplay",
    "UniformSampler",
    "Wait",
    "importance_weights",
    "mixed_priority",
    "pack_frames",
    "save_episodes",
]
