"""Replay buffers: what actors saw, kept once and drawn again. Knows numpy, Arrow and the face of parl_lite; no torch."""

from __future__ import annotations

from .prioritized import PrioritizedSampler, importance_weights
from .sequences import SequenceReplay, mixed_priority
from .transitions import TransitionReplay
from .uniform import UniformSampler

__all__ = ["PrioritizedSampler", "SequenceReplay", "TransitionReplay", "UniformSampler", "importance_weights", "mixed_priority"]
