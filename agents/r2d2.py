"""R2D2: Q-learning with a memory, from sequences. Knows nothing of buffers, environments, clusters.

A batch is a dict of columns (L, N, ...), time first: obs, action int64, reward float32, terminated, first (the row begins an
episode), valid bool; of numbers about a whole sequence: state, a dict of (N, ...) arrays as `initial_state` makes them, from
before row 0, and weight (N,); and burn_in, how many rows at the start only bring the memory up to date. A row that is not
valid still holds the observation that the row before led to: the last of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .acting import MemoryPolicy
from .bounds import Count, CountOrZero, Fraction, NotNegative, Positive
from .encoders import Trunk
from .exploration import epsilon_greedy
from .q_networks import RecurrentQNetwork, State
from .registry import DISCRETE_ACTIONS, Entry
from .settings import DistributedReplaySettings
from .spaces import Spaces
from .targets import evaluating
from .trees import row
from .value_learner import EpsilonLadder, ValueLearner, ValueLearning
from .value_math import blind_rows, mixed_priority, n_step_targets, of_action, rescale, unrescale
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class R2D2Learning(ValueLearning):
    """The paper's settings; rewards are not clipped."""

    gamma: Fraction = 0.997
    """Discount of a reward one step later."""
    n_step: Count = 5
    """Steps whose rewards are summed before the target bootstraps."""
    learning_rate: Positive = 1e-4
    """Learning rate of Adam, for the loss summed over time and averaged over sequences."""
    adam_epsilon: Positive = 1e-3
    """Added to the root of Adam's second moment: large values damp small gradients."""
    max_grad_norm: NotNegative = 40.0
    """The gradient is scaled down to this norm, if longer; 0: never."""
    batch_size: Count = 64
    """Sequences in one update."""
    sequence_length: Count = 80
    """Rows of a sequence that are learned from."""
    burn_in: CountOrZero = 40
    """Rows before them that only bring the memory up to date."""
    overlap: CountOrZero = 40
    """Learned rows that a sequence shares with the next."""
    priority_exponent: NotNegative = 0.9
    """Sequences are drawn in proportion to their priority to this power; 0: uniformly."""
    importance_exponent: Fraction = 0.6
    """How far importance weights undo that at first; the exponent rises to 1 over the run."""
    priority_mix: Fraction = 0.9
    """Weight of the largest error of a sequence in its priority; that of the mean error is the rest."""
    rescale_epsilon: NotNegative = 1e-3
    """Linear part of the function that makes large values small; values are learned through it."""
    lstm_size: Count = 512
    """Width of the memory."""
    head_size: CountOrZero = 512
    """Width of the hidden layers of value and advantage; 0: none."""
    dueling: bool = True
    """Value and advantage in streams of their own."""


class Unrolled(NamedTuple):
    """What both networks say of the learned rows, (L, N, A) each; the target's without gradient."""

    q: Tensor
    target_q: Tensor


class R2D2(ValueLearner):
    """Recurrent replay distributed DQN (Kapturowski et al. 2019).

    Both networks start from the memory that the actor stored and run through the burn-in without gradient. Then, with h
    from `rescale` and Q' the target network, one step of Adam on (1/2) sum over the rest of (target[t] - Q(s[t], a[t]))^2 with

        target[t] = h( sum_{k<n} gamma^k r[t+k] + gamma^n h^-1( Q'(s[t+n], argmax Q(s[t+n], .)) ) )

    where n is less near the end of a sequence or an episode. The priority of a sequence mixes its largest and its mean error;
    actors send those of new rows along (`errors`), so that a new sequence has such a priority from the start.

    Args:
        model: `unroll(obs, context, first, state)` -> (Q values (T, B, A), state), `initial_state(n)`, and `n_actions`, as in
            `RecurrentQNetwork`; the context is the one-hot action and the reward before each row.
        settings: how it learns.
    """

    settings: R2D2Learning

    def initial_state(self, n: int) -> State:
        """Return what `n` environments remember at the start: memory, action and reward of the step before (none)."""
        return initial_state(self.model, n)

    def predict(self, obs: Any, state: State, first: Tensor) -> tuple[Tensor, State]:
        """Return the best actions (B,) int64 without noise, and the next state; arguments as for `sample`."""
        with evaluating(self.model):
            return self.sample(obs, state, first, 0.0)

    def sample(self, obs: Any, state: State, first: Tensor, epsilon: float | Tensor | None = None) -> tuple[Tensor, State]:
        """Return actions (B,) int64, the best or with probability `epsilon` any, and the next state.

        Args:
            obs: (B, *obs_shape).
            state: what the call before returned, with its `reward` (B,) float32 replaced by what the step brought.
            first: (B,) bool: the observation begins an episode.
            epsilon: a number or (B,); that of the attribute without.
        """
        context = self._context(state["action"].unsqueeze(0), state["reward"].unsqueeze(0), first.unsqueeze(0))
        q, memory = self.model.unroll(row(obs, None), context, first.unsqueeze(0), state)
        action = epsilon_greedy(q[0], self.epsilon if epsilon is None else epsilon)
        return action, {**memory, "action": action, "reward": torch.zeros_like(state["reward"])}

    @torch.no_grad()
    def errors(self, batch: dict[str, Any]) -> Tensor:
        """Return the TD errors (L - burn_in, N) of the learned rows, 0 where a row has no target."""
        return self._errors(batch)[0]

    def _losses(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        error, counts = self._errors(batch)
        return 0.5 * error.square().sum(dim=0), mixed_priority(error.detach(), counts, self.settings.priority_mix)

    def _errors(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return TD errors, and whether the row has a target, both (L - burn_in, N)."""
        start = int(batch["burn_in"])
        unrolled = self._unroll(batch, start)
        rows = {name: batch[name][start:] for name in ("action", "reward", "terminated", "first", "valid")}
        blind = blind_rows(rows["valid"], rows["terminated"], rows["first"])
        target = self._target(rows, blind, unrolled)
        return (target - of_action(unrolled.q, rows["action"])).masked_fill(blind, 0.0), ~blind

    def _target(self, rows: dict[str, Tensor], blind: Tensor, unrolled: Unrolled) -> Tensor:
        settings = self.settings
        best = of_action(unrolled.target_q, unrolled.q.detach().argmax(dim=-1))
        value = unrescale(best, settings.rescale_epsilon)
        discount = settings.gamma * (~rows["terminated"]).to(value.dtype)
        target = n_step_targets(rows["reward"], discount, blind, value, settings.n_step)
        return rescale(target, settings.rescale_epsilon)

    def _unroll(self, batch: dict[str, Any], start: int) -> Unrolled:
        """Return both networks' values of the rows from `start` on."""
        state, first = batch["state"], batch["first"]
        action = torch.cat([state["action"].unsqueeze(0), batch["action"][:-1]])
        reward = torch.cat([state["reward"].unsqueeze(0), batch["reward"][:-1]])
        inputs = (batch["obs"], self._context(action, reward, first), first)
        q = unroll_after(self.model, inputs, state, start)
        with torch.no_grad():
            return Unrolled(q, unroll_after(self.target, inputs, state, start))

    def _context(self, action: Tensor, reward: Tensor, first: Tensor) -> Tensor:
        return context_of(action, reward, first, self.model.n_actions)


def unroll_after(model: Any, inputs: tuple[Any, Tensor, Tensor], state: State, start: int) -> Any:
    """Return the model's values of the rows from `start` on; those before are run through without gradient."""
    if start > 0:
        with torch.no_grad():
            _, state = model.unroll(*(row(column, slice(None, start)) for column in inputs), state)
    return model.unroll(*(row(column, slice(start, None)) for column in inputs), state)[0]


def context_of(action: Tensor, reward: Tensor, first: Tensor, n_actions: int) -> Tensor:
    """Return one-hot action and tanh of the reward of the step *before* each row, zeros where there was none. (T, B, A + 1)

    Args:
        action: (T, B) int64; -1: none.
        reward: (T, B) float32.
        first: (T, B) bool: the row begins an episode.
    """
    known = (~first & (action >= 0)).unsqueeze(-1)
    one_hot = functional.one_hot(action.clamp(min=0), n_actions).to(torch.float32)
    return torch.cat([one_hot, reward.tanh().unsqueeze(-1)], dim=-1) * known


def initial_state(model: Any, n: int) -> State:
    """Return the memory of a model for `n` environments, and that nothing was done and got before."""
    memory: State = model.initial_state(n)
    device = next(iter(memory.values())).device
    action = torch.full((n,), -1, dtype=torch.int64, device=device)
    return {**memory, "action": action, "reward": torch.zeros(n, device=device)}


def network(settings: R2D2Learning, encoder: Any, n_actions: int) -> RecurrentQNetwork:
    """Return the network that `settings` describe over an encoder."""
    return RecurrentQNetwork(encoder, n_actions, n_actions + 1, settings.lstm_size, **settings.head())


@dataclass(frozen=True, kw_only=True)
class R2D2Settings(R2D2Learning, EpsilonLadder, DistributedReplaySettings):
    """R2D2."""

    unroll_length: Count = 40
    """Steps of each environment in one rollout; a sequence begins where a rollout does."""
    learning_starts: Count = 50_000
    """Steps before the first update."""


def make_model(settings: R2D2Settings, spaces: Spaces) -> RecurrentQNetwork:
    """Return the network for an environment's spaces."""
    return network(settings, Trunk(spaces.obs, settings), spaces.n_actions)


SMALL = {
    "batch_size": 16,
    "sequence_length": 20,
    "burn_in": 0,
    "overlap": 0,
    "unroll_length": 20,
    "lstm_size": 64,
    "head_size": 64,
    "learning_rate": 5e-4,
    "learning_starts": 1_000,
    "target_period": 200,
    "samples_per_insert": 8.0,
}

ENTRY = Entry(
    name="r2d2",
    settings=R2D2Settings,
    algorithm=R2D2,
    wiring=Replay,
    make_model=make_model,
    make_policy=MemoryPolicy,
    actions=DISCRETE_ACTIONS,
    tuned={"CartPole-v1": SMALL, "Acrobot-v1": SMALL, "LunarLander-v3": SMALL, "MinAtar/*": SMALL},
)
