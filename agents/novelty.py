"""What is new: within an episode, and in the whole life of an agent (Never Give Up, Badia et al. 2020, arXiv:2002.06038).

Knows torch and numpy; nothing of values, policies and environments. Two networks say what a state is: an embedding that holds
what the agent can influence, since it is learned by guessing the action between two states; and a random network whose outputs
another one learns to predict, which it does badly for states that were rare. The reward of a state is

    episodic novelty  x  lifelong novelty, clipped to [1, 5]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parl_lite.model import Model

from .bounds import Count, NotNegative, Positive

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class NoveltySettings:
    """What counts as new."""

    embedding_size: Count = 32
    """Numbers that a state is compared by within an episode."""
    novelty_size: Count = 128
    """Numbers of the random network that another learns to predict."""
    memory_capacity: Count = 30_000
    """States of an episode that are remembered; the oldest goes first."""
    n_neighbours: Count = 10
    """Nearest states of the episode that a new one is compared with."""
    kernel_epsilon: Positive = 1e-4
    """How near, in mean squared distances of neighbours, a state must be to count as seen."""
    cluster_distance: NotNegative = 0.008
    """Distances up to this, in the same measure, count as none."""
    kernel_constant: NotNegative = 1e-3
    """Added to the root of the similarity: bounds the reward from above."""
    max_similarity: Positive = 8.0
    """States more similar than this to those of the episode bring no reward."""
    max_lifelong: Positive = 5.0
    """Largest factor of lifelong novelty."""


class EpisodicMemory:
    """The embeddings of one episode of one environment, and how new another is among them.

    With d the squared distances to the k nearest neighbours, divided by their running mean, less the cluster distance and not
    below zero,

        novelty = 1 / (sqrt(sum of epsilon / (d + epsilon)) + constant), or 0 where that root exceeds the maximal similarity
    """

    def __init__(self, settings: NoveltySettings) -> None:
        self.settings = settings
        self._embeddings = np.zeros((0, settings.embedding_size), dtype=np.float32)  # grows by doubling
        self._n_added = 0
        self._distance_sum = 0.0
        self._distance_count = 0

    def __len__(self) -> int:
        return min(self._n_added, self.settings.memory_capacity)

    def clear(self) -> None:
        """Begin an episode. The running mean of distances goes on: it is a matter of scale."""
        self._n_added = 0

    def add(self, embedding: Array) -> float:
        """Return the novelty of an embedding (embedding_size,) among those so far, and remember it."""
        novelty = self._novelty(embedding)
        self._make_room()
        self._embeddings[self._n_added % self.settings.memory_capacity] = embedding
        self._n_added += 1
        return novelty

    def _novelty(self, embedding: Array) -> float:
        settings = self.settings
        if len(self) == 0:
            return 0.0
        distance = np.square(self._embeddings[: len(self)] - embedding).sum(axis=1)
        if len(distance) > settings.n_neighbours:
            distance = np.partition(distance, settings.n_neighbours)[: settings.n_neighbours]
        self._distance_sum += float(distance.sum())
        self._distance_count += len(distance)
        scale = self._distance_sum / self._distance_count
        relative = np.maximum(distance / scale - settings.cluster_distance, 0) if scale > 0 else distance
        kernel = settings.kernel_epsilon / (relative + settings.kernel_epsilon)
        similarity = float(np.sqrt(kernel.sum())) + settings.kernel_constant
        return 0.0 if similarity > settings.max_similarity else 1 / similarity

    def _make_room(self) -> None:
        size = len(self._embeddings)
        if self._n_added >= size and size < self.settings.memory_capacity:
            bigger = min(self.settings.memory_capacity, max(64, 2 * size))
            self._embeddings = np.resize(self._embeddings, (bigger, self.settings.embedding_size))


class NoveltyModel(Model):
    """The networks: an embedding with a guess of the action, and a random network with its prediction.

    Args:
        make_encoder: makes an encoder of observations; called three times.
        n_actions: A.
        settings: sizes.
    """

    def __init__(self, make_encoder: Callable[[], Any], n_actions: int, settings: NoveltySettings) -> None:
        super().__init__()
        self.embedding = _onto(make_encoder(), settings.embedding_size)
        self.inverse = nn.Sequential(nn.Linear(2 * settings.embedding_size, 128), nn.ReLU(), nn.Linear(128, n_actions))
        self.random = _onto(make_encoder(), settings.novelty_size).requires_grad_(False)
        self.prediction = _onto(make_encoder(), settings.novelty_size)

    def embed(self, obs: Any) -> Tensor:
        """Return embeddings (..., embedding_size) of observations (..., *obs_shape)."""
        embeddings: Tensor = self.embedding(obs)
        return embeddings

    def surprise(self, obs: Any) -> Tensor:
        """Return the mean squared error (...) of the prediction of the random network."""
        error: Tensor = self.prediction(obs) - self.random(obs)
        return error.square().mean(dim=-1)

    def inverse_loss(self, obs: Any, next_obs: Any, action: Tensor) -> Tensor:
        """Return -log p(action | obs, next_obs) (...) of the guess of actions (...) int64."""
        logits = self.inverse(torch.cat([self.embed(obs), self.embed(next_obs)], dim=-1))
        return functional.cross_entropy(logits.flatten(0, -2), action.flatten(), reduction="none").view_as(action)

    def get_learned_params(self) -> list[nn.Parameter]:
        """Return all parameters but those of the random network."""
        return [*self.embedding.parameters(), *self.inverse.parameters(), *self.prediction.parameters()]


class Novelty:
    """Rewards for what is new in B environments; one of these lives in each actor.

    Args:
        model: the networks; their weights come from the learner.
        n_envs: B.
        settings: see above.
    """

    def __init__(self, model: NoveltyModel, n_envs: int, settings: NoveltySettings) -> None:
        self.model = model
        self.settings = settings
        self.memories = [EpisodicMemory(settings) for _ in range(n_envs)]
        self._n = 0
        self._mean = 0.0
        self._squares = 0.0

    @torch.no_grad()
    def reward(self, obs: Any, first: Array) -> Array:
        """Return the rewards (B,) float32 of the states that a step led to.

        Args:
            obs: (B, *obs_shape), tensors.
            first: (B,) bool: the observation begins an episode; there is no reward for that, but it is remembered.
        """
        embeddings = self.model.embed(obs).cpu().numpy()
        surprise = self.model.surprise(obs).cpu().numpy()
        for memory in (memory for memory, begins in zip(self.memories, first, strict=True) if begins):
            memory.clear()
        episodic = np.array([memory.add(each) for memory, each in zip(self.memories, embeddings, strict=True)])
        reward: Array = np.where(first, 0.0, episodic * self._lifelong(surprise)).astype(np.float32)
        return reward

    def _lifelong(self, surprise: Array) -> Array:
        """Return 1 + how many standard deviations the surprise is above its running mean, clipped."""
        for each in surprise.astype(np.float64):
            self._n += 1
            before = each - self._mean
            self._mean += before / self._n
            self._squares += before * (each - self._mean)
        deviation = np.sqrt(self._squares / self._n)
        relative = (surprise - self._mean) / deviation if deviation > 0 else np.zeros_like(surprise)
        factor: Array = np.clip(1 + relative, 1, self.settings.max_lifelong)
        return factor


def _onto(encoder: Any, size: int) -> nn.Module:
    return nn.Sequential(encoder, nn.Linear(encoder.n_features, size))
