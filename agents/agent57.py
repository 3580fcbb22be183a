"""Agent57: R2D2 with a family of policies, from exploiting to exploring. Knows nothing of buffers, environments, clusters.

A batch is that of `r2d2.py` with three more columns (L, N): policy int64, which of the family acted, intrinsic_reward float32,
what `novelty.py` said of the observation that the row led to, and behaviour_log_prob float32 of the action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .acting import FamilyPolicy
from .agent57_networks import Agent57Network, SplitQNetwork, Values
from .bounds import Count, Fraction, NotNegative, Positive
from .encoders import Trunk
from .exploration import epsilon_greedy, greedy_probability
from .novelty import NoveltyModel, NoveltySettings
from .policy_family import agent57_discounts, discounts, intrinsic_weights
from .q_networks import RecurrentQNetwork, State
from .r2d2 import R2D2Learning, context_of, unroll_after
from .registry import DISCRETE_ACTIONS, Entry
from .settings import DistributedReplaySettings
from .spaces import Spaces
from .targets import adam, descend, evaluating
from .trees import row
from .value_learner import EpsilonLadder, ValueLearner
from .value_math import blind_rows, mixed_priority, of_action, rescale, retrace_targets, unrescale
from .wirings.replay import Replay


@dataclass(frozen=True, kw_only=True)
class Agent57Learning(R2D2Learning, NoveltySettings):
    """The paper's settings; a small environment wants fewer policies and shorter sequences."""

    adam_epsilon: Positive = 1e-4
    """Added to the root of Adam's second moment: large values damp small gradients."""
    target_period: Count = 1_500
    """Updates between two moves of the target network."""
    n_policies: Count = 32
    """Policies of the family; the first only exploits."""
    largest_intrinsic_weight: NotNegative = 0.3
    """Weight (beta) of novelty for the policy that explores most."""
    highest_gamma: Fraction = 0.9999
    """Discount of the policy that only exploits."""
    gamma: Fraction = 0.997
    """Discount of the eighth policy of ten or more; not used in smaller families."""
    lowest_gamma: Fraction = 0.99
    """Discount of the policy that explores most."""
    retrace_lambda: Fraction = 0.95
    """Weight of longer traces in Retrace, which has no fixed number of steps."""
    target_epsilon: Fraction = 0.0
    """Probability of a random action in the policies that values are learned of."""
    novelty_learning_rate: Positive = 5e-4
    """Learning rate of the networks that say what is new, for Adam."""
    bandit_window: Count = 160
    """Episodes by whose returns the next policy is chosen."""
    bandit_bonus: NotNegative = 1.0
    """Weight of the bonus for policies that were seldom chosen, in units of returns."""
    bandit_epsilon: Fraction = 0.5
    """Probability that the next policy is any."""


class Agent57(ValueLearner):
    """Agent57 (Badia et al. 2020, arXiv:2003.13350), after Never Give Up (arXiv:2002.06038).

    Policy j is greedy in Q_j = h( h^-1(Q_extrinsic) + beta_j h^-1(Q_intrinsic) ). Each of the two learns its own reward, by
    Retrace with that policy as the target and gamma_j as the discount; both know j. Sequences, burn-in, h and priorities are
    those of R2D2. Beside them the networks that say what is new learn to guess actions and to predict a random network.

    Args:
        model: an `Agent57Network`.
        settings: how it learns.
    """

    settings: Agent57Learning
    extra_columns = ("policy", "intrinsic_reward", "behaviour_log_prob")

    def __init__(self, model: Any, settings: Agent57Learning) -> None:
        super().__init__(model, settings)
        self.optimizer = adam(model.q.parameters(), settings.learning_rate, settings.adam_epsilon)
        self.novelty_optimizer = adam(model.novelty.get_learned_params(), settings.novelty_learning_rate)
        device = next(model.parameters()).device
        beta, gamma = family(settings)
        self.beta = beta.to(device)
        self.gamma = gamma.to(device)

    def initial_state(self, n: int) -> State:
        """Return what `n` environments remember at the start: both memories, action and rewards of the step before (none)."""
        memory: State = self.model.q.initial_state(n)
        zeros = torch.zeros(n, device=self.beta.device)
        action = torch.full((n,), -1, dtype=torch.int64, device=self.beta.device)
        return {**memory, "action": action, "reward": zeros, "intrinsic_reward": zeros.clone()}

    def predict(self, obs: Any, state: State, first: Tensor, policy: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the best actions (B,) int64 of a policy, that which only exploits without, and the next state."""
        policy = torch.zeros(len(first), dtype=torch.int64, device=first.device) if policy is None else policy
        with evaluating(self.model):
            action, _, state = self.sample(obs, state, first, policy, 0.0)
        return action, state

    def sample(
        self, obs: Any, state: State, first: Tensor, policy: Tensor, epsilon: float | Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Return actions (B,) int64, their log-probabilities (B,), and the next state.

        Args:
            obs: (B, *obs_shape).
            state: what the call before returned, with its `reward` and `intrinsic_reward` (B,) float32 replaced by what the
                step brought.
            first: (B,) bool: the observation begins an episode.
            policy: (B,) int64: which of the family acts in each environment.
            epsilon: probability of a random action, a number or (B,); that of the attribute without.
        """
        epsilon = self.epsilon if epsilon is None else epsilon
        done = {name: state[name].unsqueeze(0) for name in ("action", "reward", "intrinsic_reward")}
        values, memory = self.model.q.unroll(row(obs, None), self._context(done, policy[None], first[None]), first[None], state)
        q = self._combined(values, policy[None])[0]
        action = epsilon_greedy(q, epsilon)
        nothing = {name: torch.zeros_like(state[name]) for name in ("reward", "intrinsic_reward")}
        return action, greedy_probability(q, action, epsilon).log(), {**memory, "action": action, **nothing}

    def learn(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Make one update from N sequences; return measures, and where there were weights `priority` (N,)."""
        return {**super().learn(batch), **self._learn_novelty(batch)}

    @torch.no_grad()
    def errors(self, batch: dict[str, Any]) -> Tensor:
        """Return |error| + beta |intrinsic error| (L - burn_in, N) of the learned rows, 0 where a row has no target."""
        return self._size(self._errors(batch)[0], batch)

    def _losses(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        errors, counts = self._errors(batch)
        loss = 0.5 * sum(error.square().sum(dim=0) for error in errors)
        return torch.as_tensor(loss), mixed_priority(self._size(errors, batch), counts, self.settings.priority_mix)

    def _size(self, errors: Values, batch: dict[str, Any]) -> Tensor:
        """Return what the errors of both rewards count together, (L - burn_in, N), without gradient."""
        beta = self.beta[batch["policy"][int(batch["burn_in"]) :]]
        return errors.extrinsic.detach().abs() + beta * errors.intrinsic.detach().abs()

    def _errors(self, batch: dict[str, Any]) -> tuple[Values, Tensor]:
        """Return the TD errors of both rewards, and whether the row has a target, (L - burn_in, N) each."""
        start = int(batch["burn_in"])
        values, target_values = self._unroll(batch, start)
        rows = {name: column[start:] for name, column in batch.items() if name in _ROWS}
        blind = blind_rows(rows["valid"], rows["terminated"], rows["first"])
        q = self._combined(Values(*(each.detach() for each in values)), rows["policy"])
        errors = []
        for name, mine, target in zip(("reward", "intrinsic_reward"), values, target_values, strict=True):
            error = self._target(rows, rows[name], blind, q, target) - of_action(mine, rows["action"])
            errors.append(error.masked_fill(blind, 0.0))
        return Values(*errors), ~blind

    def _target(self, rows: dict[str, Tensor], reward: Tensor, blind: Tensor, q: Tensor, target: Tensor) -> Tensor:
        """Return the targets (L, N) of one kind of reward; q (L, N, A) says what the policy does."""
        settings, action = self.settings, rows["action"]
        target = unrescale(target, settings.rescale_epsilon)  # (L, N, A)
        taken = of_action(target, action)
        value = (1 - settings.target_epsilon) * of_action(target, q.argmax(dim=-1))
        value = value + settings.target_epsilon * target.mean(dim=-1)
        ratio = greedy_probability(q, action, settings.target_epsilon) / rows["behaviour_log_prob"].exp()
        trace = settings.retrace_lambda * ratio.clamp(max=1)
        discount = self.gamma[rows["policy"]] * ~rows["terminated"]
        return rescale(retrace_targets(reward, discount, blind, taken, value, trace), settings.rescale_epsilon)

    def _unroll(self, batch: dict[str, Any], start: int) -> tuple[Values, Values]:
        """Return the values of both networks in the rows from `start` on; the target's without gradient."""
        state, first = batch["state"], batch["first"]
        names = ("action", "reward", "intrinsic_reward")
        before = {name: torch.cat([state[name].unsqueeze(0), batch[name][:-1]]) for name in names}
        inputs = (batch["obs"], self._context(before, batch["policy"], first), first)
        values = unroll_after(self.model.q, inputs, state, start)
        with torch.no_grad():
            return values, unroll_after(self.target.q, inputs, state, start)

    def _context(self, before: dict[str, Tensor], policy: Tensor, first: Tensor) -> Tensor:
        """Return (T, B, A + 2 + n_policies): the step before each row, and the policy."""
        step = context_of(before["action"], before["reward"], first, self.model.n_actions)
        novelty = (before["intrinsic_reward"].tanh() * ~first).unsqueeze(-1)
        one_hot = functional.one_hot(policy, self.settings.n_policies).to(torch.float32)
        return torch.cat([step, novelty, one_hot], dim=-1)

    def _combined(self, values: Values, policy: Tensor) -> Tensor:
        """Return Q_j before the outer h, which changes no order. (..., A)"""
        epsilon, beta = self.settings.rescale_epsilon, self.beta[policy].unsqueeze(-1)
        return unrescale(values.extrinsic, epsilon) + beta * unrescale(values.intrinsic, epsilon)

    def _learn_novelty(self, batch: dict[str, Any]) -> dict[str, float]:
        """Make a step of the networks that say what is new, on the rows that are learned from."""
        start = int(batch["burn_in"])
        obs = row(batch["obs"], slice(start, None))
        follows = batch["valid"][start:-1] & ~batch["first"][start + 1 :]  # (L - 1, N)
        guess = self.model.novelty.inverse_loss(row(obs, slice(None, -1)), row(obs, slice(1, None)), batch["action"][start:-1])
        inverse_loss = guess[follows].sum() / follows.sum().clamp(min=1)
        seen = batch["valid"][start:]
        surprise = self.model.novelty.surprise(obs)[seen].sum() / seen.sum().clamp(min=1)
        descend(self.novelty_optimizer, inverse_loss + surprise, self.settings.max_grad_norm)
        return {"inverse_loss": inverse_loss.item(), "surprise": surprise.item()}


_ROWS = ("action", "reward", "intrinsic_reward", "terminated", "first", "valid", "policy", "behaviour_log_prob")


def family(settings: Agent57Learning) -> tuple[Tensor, Tensor]:
    """Return beta and gamma (n_policies,) float32 of the policies."""
    n, highest, lowest = settings.n_policies, settings.highest_gamma, settings.lowest_gamma
    gamma = agent57_discounts(n, highest, settings.gamma, lowest) if n >= 10 else discounts(n, highest, lowest)
    beta = intrinsic_weights(n, settings.largest_intrinsic_weight)
    return torch.as_tensor(beta, dtype=torch.float32), torch.as_tensor(gamma, dtype=torch.float32)


def network(settings: Agent57Learning, make_encoder: Callable[[], Any], n_actions: int) -> Agent57Network:
    """Return the networks that `settings` describe over encoders, of which five are made."""
    n_context = n_actions + 2 + settings.n_policies

    def recurrent() -> RecurrentQNetwork:
        return RecurrentQNetwork(make_encoder(), n_actions, n_context, settings.lstm_size, **settings.head())

    return Agent57Network(SplitQNetwork(recurrent), NoveltyModel(make_encoder, n_actions, settings), n_actions)


@dataclass(frozen=True, kw_only=True)
class Agent57Settings(Agent57Learning, EpsilonLadder, DistributedReplaySettings):
    """Agent57."""

    unroll_length: Count = 40
    """Steps of each environment in one rollout; a sequence begins where a rollout does."""
    learning_starts: Count = 50_000
    """Steps before the first update."""


def make_model(settings: Agent57Settings, spaces: Spaces) -> Agent57Network:
    """Return the networks for an environment's spaces."""
    return network(settings, partial(Trunk, spaces.obs, settings), spaces.n_actions)


ENTRY = Entry(
    name="agent57",
    settings=Agent57Settings,
    algorithm=Agent57,
    wiring=Replay,
    make_model=make_model,
    make_policy=FamilyPolicy,
    actions=DISCRETE_ACTIONS,
)
