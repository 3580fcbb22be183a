"""Random streams for many processes from one seed: distinct for each rank, the same in each run. Knows numpy and torch."""

from __future__ import annotations

import random

import numpy as np
import torch


def sequence_of(seed: int, rank: int) -> np.random.SeedSequence:
    """Return the root of all streams of process `rank`; rank -1 is the learner."""
    return np.random.SeedSequence(entropy=seed, spawn_key=(rank + 1,))


def seed_of_part(seed: int, n_parts: int) -> int:
    """Return the seed of the actors of a run in its n-th part; each but the first began by resuming the run.

    With the seed of the part before, they would play the same games again.
    """
    return seed if n_parts == 1 else int(np.random.SeedSequence([seed, n_parts]).generate_state(1)[0])


def env_seeds(sequence: np.random.SeedSequence, n_envs: int) -> list[int]:
    """Return a seed for each of `n_envs` environments."""
    return [int(child.generate_state(1)[0]) for child in sequence.spawn(n_envs)]


def torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    """Return a stream for sampling actions."""
    return torch.Generator().manual_seed(_seed64(sequence))


def seed_globally(sequence: np.random.SeedSequence) -> None:
    """Seed `random`, numpy's legacy stream and torch of this process, from which networks and environments may draw."""
    children = sequence.spawn(3)
    random.seed(_seed64(children[0]))
    np.random.seed(children[1].generate_state(4))
    torch.manual_seed(_seed64(children[2]))


def _seed64(sequence: np.random.SeedSequence) -> int:
    return int(sequence.spawn(1)[0].generate_state(1, dtype=np.uint64)[0] >> np.uint64(1))
