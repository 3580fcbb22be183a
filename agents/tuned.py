"""Settings of the value algorithms that were found to do well, by environment. Knows no algorithm; each takes what it has."""

from __future__ import annotations

from typing import Any

CARTPOLE = {
    "hidden_size": 128,
    "learning_rate": 5e-4,
    "batch_size": 64,
    "unroll_length": 16,
    "samples_per_insert": 16.0,
    "replay_capacity": 50_000,
    "target_period": 100,
    "epsilon_end": 0.04,
    "exploration_fraction": 0.1,
}
TUNED: dict[str, dict[str, Any]] = {"CartPole-v1": CARTPOLE}
