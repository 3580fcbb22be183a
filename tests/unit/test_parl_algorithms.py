"""PARL's algorithms: their losses by hand, each learns a small problem, each goes on bit by bit from a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parl_lite import algorithms
from parl_lite.agent import Agent
from parl_lite.algorithm import Algorithm
from parl_lite.algorithms.updates import bootstrapped, vtrace
from parl_lite.model import Model

CONFIG = {"vf_loss_coeff": 0.5, "learning_rate": 0.01}
OFF_POLICY: dict[str, float] = {"gamma": 0.5, "tau": 0.1, "actor_lr": 0.01, "critic_lr": 0.01}


def table(*rows: list[float]) -> nn.Linear:
    """Return a layer that gives rows[i] for the i-th unit vector."""
    layer = nn.Linear(len(rows), len(rows[0]), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(rows).T)
    return layer


class Values(Model):
    """Q(s, a) from a table; states are unit vectors."""

    def __init__(self, *rows: list[float]) -> None:
        super().__init__()
        self.layer = table(*rows)

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs)


class ActorCritic(Model):
    """Logits and values from tables."""

    def __init__(self, logits: list[list[float]], values: list[list[float]]) -> None:
        super().__init__()
        self.actor, self.critic = table(*logits), table(*values)

    def policy(self, obs: Tensor) -> Tensor:
        return self.actor(obs)

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


class Continuous(Model):
    """Linear policy and values of s and a, or with hidden layers and bounded actions; two values for TD3 and SAC."""

    def __init__(self, kind: str, hidden: int = 0) -> None:
        super().__init__()
        self.kind, self.bounded = kind, hidden > 0
        self.actor = mlp(1, hidden, 2 if kind == "SAC" else 1)
        self.critic1, self.critic2 = mlp(2, hidden, 1), mlp(2, hidden, 1)

    def policy(self, obs: Tensor) -> Any:
        out = self.actor(obs)
        if self.kind == "SAC":
            return out.chunk(2, dim=-1)
        return out.tanh() if self.bounded else out

    def value(self, obs: Tensor, action: Tensor) -> Any:
        return self.Q1(obs, action) if self.kind == "DDPG" else (self.Q1(obs, action), self.critic2(torch.cat([obs, action], 1)))

    def Q1(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.critic1(torch.cat([obs, action], 1))

    def get_actor_params(self) -> list[nn.Parameter]:
        return list(self.actor.parameters())

    def get_critic_params(self) -> list[nn.Parameter]:
        return [*self.critic1.parameters(), *self.critic2.parameters()]

    def fix(self, actor: float, first: tuple[float, float], second: tuple[float, float] = (0, 0)) -> Continuous:
        """Make policy(s) = actor * s, and each critic c0 s + c1 a."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.actor.weight[0, 0] = actor
            self.critic1.weight[0] = torch.tensor(first)
            self.critic2.weight[0] = torch.tensor(second)
        return self


def mlp(n_in: int, hidden: int, n_out: int) -> Any:
    if not hidden:
        return nn.Linear(n_in, n_out)
    return nn.Sequential(nn.Linear(n_in, hidden), nn.Tanh(), nn.Linear(hidden, n_out))


# --- shared mathematics --------------------------------------------------------------------------------------


def test_a_target_has_the_shape_of_the_values_whatever_that_of_rewards_and_ends() -> None:
    reward, terminal, following = torch.tensor([1.0, 2.0]), torch.tensor([False, True]), torch.tensor([[10.0], [10.0]])
    assert bootstrapped(reward, terminal, following, 0.5).tolist() == [[6.0], [2.0]]
    assert bootstrapped(reward[:, None], terminal.float(), following[:, 0], 0.5).tolist() == [6.0, 2.0]


def test_vtrace_by_hand() -> None:
    # delta = min(1, ratio) (r + 0.5 V' - V): 1 (1 + 1 - 1) = 1, and 0.5 (1 + 2 - 2) = 0.5; then 1 + 0.5 * 1 * 0.5 = 1.25
    column = lambda *values: torch.tensor(values)[:, None]  # noqa: E731
    found = vtrace(column(2.0, 0.5), column(0.5, 0.5), column(1.0, 1.0), column(1.0, 2.0), torch.tensor([4.0]), 1.0, 2.0)
    assert found.target.flatten().tolist() == [2.25, 2.5]
    # min(2, ratio) (r + 0.5 target' - V): 2 (1 + 1.25 - 1) = 2.5, and 0.5 (1 + 2 - 2) = 0.5
    assert found.advantage.flatten().tolist() == [2.5, 0.5]


def test_vtrace_on_policy_is_the_discounted_return_and_stops_where_an_episode_ends() -> None:
    generator = torch.Generator().manual_seed(0)
    reward, value = torch.rand(5, 3, generator=generator), torch.rand(5, 3, generator=generator)
    last, ends = torch.rand(3, generator=generator), torch.rand(5, 3, generator=generator) < 0.3
    target, advantage = vtrace(torch.ones(5, 3), 0.9 * ~ends, reward, value, last, 1.0, 1.0)
    following = last
    for t in reversed(range(5)):
        following = reward[t] + 0.9 * ~ends[t] * following
        torch.testing.assert_close(target[t], following)
    torch.testing.assert_close(advantage, target - value)


# --- losses by hand ------------------------------------------------------------------------------------------


def test_policy_gradient_by_hand() -> None:
    class Policy(Values):
        def forward(self, obs: Tensor) -> Tensor:
            return self.layer(obs).softmax(-1)

    model = Policy([0.0, 0.0], [math.log(3), 0.0])
    alg = algorithms.PolicyGradient(model, lr=0.1)
    loss = alg.learn(torch.eye(2), torch.tensor([0, 1]), torch.tensor([2.0, 1.0]))
    assert loss.item() == pytest.approx((2 * math.log(2) + math.log(4)) / 2)
    # the gradient of -log pi(0) * 2 / 2 for the first state: -(1 - 0.5) and +0.5; Adam's first step is lr * its sign
    assert model.layer.weight.detach().flatten().tolist() == pytest.approx([0.1, math.log(3) - 0.1, -0.1, 0.1], abs=1e-6)


@pytest.mark.parametrize("columns", [(), (1,)])
@pytest.mark.parametrize(("name", "target"), [("DQN", 1 + 0.5 * 7), ("DDQN", 1 + 0.5 * 3)])
def test_dqn_and_double_dqn_by_hand(name: str, target: float, columns: tuple[int, ...]) -> None:
    alg = getattr(algorithms, name)(Values([2.0, 0.0], [5.0, 6.0]), gamma=0.5, lr=0.1)
    alg.target_model = Values([0.0, 0.0], [7.0, 3.0])  # the model would choose action 1, its target network 0
    obs, following = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    shape = (2, *columns)
    action, reward = torch.tensor([0, 1], dtype=torch.int32).reshape(shape), torch.tensor([1.0, 4.0]).reshape(shape)
    loss = alg.learn(obs, action, reward, following, torch.tensor([False, True]).reshape(shape))
    assert loss == pytest.approx(((2 - target) ** 2 + (6 - 4) ** 2) / 2)
    sign = 1 if target > 2 else -1
    assert alg.model.layer.weight.detach().flatten().tolist() == pytest.approx([2 + 0.1 * sign, 5, 0, 6 - 0.1], abs=1e-6)


def test_the_target_network_changes_when_it_is_told_to() -> None:
    alg = algorithms.DQN(Values([2.0, 0.0]), gamma=0.5, lr=0.1)
    alg.learn(torch.ones(1, 1), torch.tensor([0]), torch.tensor([1.0]), torch.ones(1, 1), torch.tensor([1.0]))
    assert alg.target_model(torch.ones(1, 1)).tolist() == [[2.0, 0.0]]
    alg.sync_target()
    assert torch.equal(alg.target_model(torch.ones(1, 1)), alg.predict(torch.ones(1, 1)))


def test_a2c_by_hand_sums_over_the_batch() -> None:
    model = ActorCritic([[0.0, 0.0], [math.log(3), 0.0]], [[1.0], [2.0]])
    alg = algorithms.A2C(model, CONFIG)
    advantages, targets = torch.tensor([2.0, 1.0]), torch.tensor([2.0, 5.0])
    losses = alg.learn(torch.eye(2), torch.tensor([0, 1]), advantages, targets, lr=0.1, entropy_coeff=-0.01)
    pi_loss = 2 * math.log(2) + math.log(4)
    vf_loss = 0.5 * (1 + 9)
    entropy = math.log(2) - (0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = [pi_loss + 0.5 * vf_loss - 0.01 * entropy, pi_loss, vf_loss, entropy]
    assert [loss.item() for loss in losses] == pytest.approx(expected)
    assert model.critic.weight.detach().flatten().tolist() == pytest.approx([1.1, 2.1], abs=1e-5)  # Adam at the lr given here


def test_a2c_asks_the_model_once_where_the_model_allows() -> None:
    class Both(ActorCritic):
        calls = 0

        def policy_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            return self.policy(obs), self.value(obs)

    for kind, calls in ((ActorCritic, None), (Both, 2)):
        model = kind([[math.log(3), 0.0]], [[4.0]])
        alg = algorithms.A2C(model, CONFIG)
        probabilities, values = alg.prob_and_value(torch.ones(1, 1))
        assert probabilities.flatten().tolist() == pytest.approx([0.75, 0.25])
        assert (values.tolist(), alg.value(torch.ones(1, 1)).tolist(), alg.predict(torch.ones(1, 1)).tolist()) == (
            [4.0],
            [4.0],
            [0],
        )
        assert alg.sample(torch.ones(3, 1))[0].shape == (3,)
        assert getattr(model, "calls", None) == calls


def ppo_losses(**settings: Any) -> tuple[float, float, float]:
    """Return what PPO makes of two steps: ratios 1.5 and 0.5, values 1 and 3 that were 0 and 3, returns 2 and 1."""
    model = ActorCritic([[0.0, 0.0], [0.0, 0.0]], [[1.0], [3.0]])
    alg = algorithms.PPO(model, clip_param=0.2, initial_lr=0.1, **settings)
    log_prob = torch.tensor([math.log(1 / 3), 0.0])
    value, returns, adv = torch.tensor([0.0, 3.0]), torch.tensor([2.0, 1.0]), torch.tensor([3.0, 1.0])
    return alg.learn(torch.eye(2), torch.tensor([0, 1]), value, returns, log_prob, adv)


def test_ppo_by_hand() -> None:
    value_loss, action_loss, entropy = ppo_losses(norm_adv=False)
    # the first value may go from 0 to 0.2 only: (0.2 - 2)^2 is the larger error; min(1.5 * 3, 1.2 * 3) and min(0.5, 0.8)
    assert value_loss == pytest.approx(0.5 * (1.8**2 + 4) / 2)
    assert action_loss == pytest.approx(-(1.2 * 3 + 0.5 * 1) / 2)
    assert entropy == pytest.approx(math.log(2))


def test_ppo_without_clipping_of_the_value_and_with_normalised_advantages_by_hand() -> None:
    value_loss, action_loss, _ = ppo_losses(use_clipped_value_loss=False)
    # advantages 3 and 1 have the deviation sqrt(2): 1 / sqrt(2) and its opposite; min(-0.5, -0.8) / sqrt(2)
    assert value_loss == pytest.approx(0.5 * (1 + 4) / 2)
    assert action_loss == pytest.approx(-(1.2 - 0.8) / math.sqrt(2) / 2, abs=1e-6)


def test_ppo_goes_on_with_the_last_learning_rate_and_takes_zero_for_a_rate() -> None:
    alg = algorithms.PPO(ActorCritic([[0.0, 0.0]], [[1.0]]), initial_lr=0.1)
    batch = (torch.ones(2, 1), torch.tensor([0, 1]), torch.ones(2), torch.ones(2), torch.full((2,), math.log(0.5)), torch.ones(2))
    for given, rate in ((None, 0.1), (0.05, 0.05), (None, 0.05), (0.0, 0.0)):
        alg.learn(*batch, given)
        assert alg.optimizer.param_groups[0]["lr"] == rate


def test_ppo_of_continuous_actions_by_hand() -> None:
    class Gaussian(ActorCritic):
        def policy(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            mean = self.actor(obs)
            return mean, torch.full_like(mean, 2.0)

    alg = algorithms.PPO(Gaussian([[1.0, -1.0]], [[4.0]]), continuous_action=True)
    value, action, log_prob, entropy = alg.sample(torch.ones(3, 1))
    assert (value.shape, action.shape, log_prob.shape, entropy.shape) == ((3,), (3, 2), (3,), (3,))
    z = (action - torch.tensor([1.0, -1.0])) / 2
    assert torch.allclose(log_prob, (-0.5 * z**2 - math.log(2) - 0.5 * math.log(2 * math.pi)).sum(1))
    assert entropy.tolist() == pytest.approx([2 * (0.5 + 0.5 * math.log(2 * math.pi) + math.log(2))] * 3)
    assert alg.predict(torch.ones(3, 1)).tolist() == [[1.0, -1.0]] * 3
    _, action_loss, _ = alg.learn(torch.ones(3, 1), action, value, value, log_prob, torch.tensor([1.0, 2.0, 3.0]))
    assert action_loss == pytest.approx(0, abs=1e-6)  # ratios of 1, normalised advantages


def test_ppo_of_discrete_actions_predicts_a_column_as_in_parl() -> None:
    alg = algorithms.PPO(ActorCritic([[0.0, 1.0]], [[4.0]]))
    assert alg.predict(torch.ones(3, 1)).tolist() == [[1]] * 3
    assert alg.value(torch.ones(1, 1)).tolist() == [4.0]


def impala(model: Model, steps: int) -> algorithms.IMPALA:
    return algorithms.IMPALA(
        model, sample_batch_steps=steps, gamma=0.5, vf_loss_coeff=0.5, clip_rho_threshold=1.0, clip_pg_rho_threshold=1.0
    )


def test_impala_by_hand_bootstraps_from_the_last_row_of_each_environment() -> None:
    model = ActorCritic([[0.0, 0.0], [0.0, 0.0]], [[1.0], [2.0]])
    obs = torch.eye(2)[[0, 1, 1, 0]]  # environment A sees states 0 and 1, environment B 1 and 0
    rewards, dones = torch.tensor([1.0, 9.0, 1.0, 9.0]), torch.tensor([False, False, True, False])
    losses, kl = impala(model, 2).learn(obs, torch.tensor([0, 1, 1, 0]), torch.zeros(4, 2), rewards, dones, 0.1, -0.01)
    # targets: 1 + 0.5 * 2 = 2 against V = 1, and 1 against V = 2 where the episode ended
    assert losses.pi_loss.item() == pytest.approx((1 - 1) * math.log(2))
    assert losses.vf_loss.item() == pytest.approx(0.5 * (1 + 1))
    assert losses.entropy.item() == pytest.approx(2 * math.log(2))
    assert losses.total_loss.item() == pytest.approx(0.5 - 0.01 * 2 * math.log(2))
    assert kl.item() == pytest.approx(0)


def test_impala_weighs_the_steps_of_an_older_policy() -> None:
    model = ActorCritic([[0.0, 0.0]], [[0.0]])
    behaviour = torch.tensor([[math.log(3), 0.0]] * 2)  # the actor chose action 0 with 3/4, the learner would with 1/2
    losses, kl = impala(model, 2).learn(torch.ones(2, 1), torch.tensor([0, 0]), behaviour, torch.ones(2), torch.ones(2), 0.1, 0.0)
    assert losses.pi_loss.item() == pytest.approx(2 / 3 * math.log(2))
    assert losses.vf_loss.item() == pytest.approx(0.5 * (2 / 3) ** 2)
    assert kl.item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))


def test_impala_refuses_rows_that_do_not_divide_into_environments() -> None:
    alg = impala(ActorCritic([[0.0, 0.0]], [[0.0]]), 2)
    with pytest.raises(ValueError, match="3 rows are no multiple of sample_batch_steps=2"):
        alg.learn(torch.ones(3, 1), torch.zeros(3).long(), torch.zeros(3, 2), torch.ones(3), torch.ones(3), 0.1, 0.0)


TRANSITIONS = [torch.tensor([[1.0], [1.0]]), torch.tensor([[0.5], [0.5]]), torch.tensor([[1.0], [1.0]])]
TRANSITIONS += [torch.tensor([[2.0], [2.0]]), torch.tensor([[0.0], [1.0]])]
"""State 1, action 0.5, reward 1, next state 2, once in the middle of an episode and once at its end."""


def test_ddpg_by_hand() -> None:
    alg = algorithms.DDPG(Continuous("DDPG").fix(0.25, (3.0, 2.0)), **OFF_POLICY)
    critic_loss, actor_loss = alg.learn(*TRANSITIONS)
    # Q = 3 * 1 + 2 * 0.5 = 4; Q' = 3 * 2 + 2 * 0.5 = 7: targets 1 + 0.5 * 7 and 1
    assert critic_loss.item() == pytest.approx(((4 - 4.5) ** 2 + (4 - 1) ** 2) / 2)
    # Adam took the critic to 3 - 0.01, 2 - 0.01 and the bias -0.01: Q(1, 0.25)
    assert actor_loss is not None
    assert actor_loss.item() == pytest.approx(-(2.99 + 1.99 * 0.25 - 0.01), abs=1e-5)
    assert alg.model.actor.weight.item() == pytest.approx(0.26, abs=1e-5)  # uphill
    assert alg.target_model.actor.weight.item() == pytest.approx(0.251, abs=1e-5)  # a tenth of the way


def test_only_the_actor_moves_in_the_actors_step() -> None:
    alg = algorithms.DDPG(Continuous("DDPG").fix(0.25, (3.0, 2.0)), **(OFF_POLICY | {"critic_lr": 0.0}))
    alg.learn(*TRANSITIONS)
    assert alg.model.critic1.weight.flatten().tolist() == [3.0, 2.0]


def test_td3_by_hand_takes_the_smaller_of_two_and_bounds_the_noisy_action() -> None:
    model = Continuous("TD3").fix(0.6, (3.0, 2.0), (4.0, 1.0))
    alg = algorithms.TD3(model, **OFF_POLICY, policy_noise=100.0, noise_clip=0.5)
    torch.manual_seed(0)
    upwards = torch.randn(2, 1)[0].item() > 0
    torch.manual_seed(0)
    critic_loss, actor_loss = alg.learn(*TRANSITIONS)
    # the target's action is 1.2 + 0.5 -> 1, or 1.2 - 0.5 = 0.7; min(3 * 2 + 2 a, 4 * 2 + a)
    action = 1.0 if upwards else 0.7
    targets = (1 + 0.5 * min(6 + 2 * action, 8 + action), 1)
    expected = sum((4 - target) ** 2 + (4.5 - target) ** 2 for target in targets) / 2
    assert critic_loss.item() == pytest.approx(expected, rel=1e-5)
    assert actor_loss is None


def test_td3_lets_the_actor_learn_and_the_target_move_at_every_second_update() -> None:
    alg = algorithms.TD3(Continuous("TD3").fix(0.6, (3.0, 2.0)), **OFF_POLICY)
    moved = []
    for _ in range(4):
        before = alg.model.actor.weight.item(), alg.target_model.critic1.weight[0, 0].item()
        alg.learn(*TRANSITIONS)
        moved.append((alg.model.actor.weight.item() != before[0], alg.target_model.critic1.weight[0, 0].item() != before[1]))
    assert moved == [(False, False), (True, True)] * 2


def sac(**changes: Any) -> algorithms.SAC:
    """Return SAC with mean 0.25 s, and a log of the deviation of 0 but for `log_std`."""
    model = Continuous("SAC").fix(0.25, (3.0, 2.0), (4.0, 1.0))
    with torch.no_grad():
        model.actor.bias[1] = changes.pop("log_std", 0.0)
    return algorithms.SAC(model, **{**OFF_POLICY, "alpha": 0.2, **changes})


def test_sac_draws_by_the_change_of_variables() -> None:
    torch.manual_seed(1)
    action, log_prob = sac().sample(torch.ones(1000, 1))
    assert (action.shape, log_prob.shape) == ((1000, 1), (1000, 1))
    x = torch.atanh(action.double())
    density = torch.exp(-((x - 0.25) ** 2) / 2) / math.sqrt(2 * math.pi) / (1 - action.double() ** 2)
    torch.testing.assert_close(log_prob.double(), density.log(), rtol=1e-3, atol=1e-3)
    assert sac().predict(torch.ones(1, 1)).item() == pytest.approx(math.tanh(0.25))


def test_sac_keeps_its_digits_where_tanh_has_none() -> None:
    torch.manual_seed(0)
    alg = sac(log_std=-20.0)
    with torch.no_grad():
        alg.model.actor.bias[0] = 20.0
    _, log_prob = alg.sample(torch.zeros(1, 1))
    # the log of the Gaussian's density is 20 - 0.9 - z^2 / 2; log(1 - tanh(20)^2) = 2 (log 2 - 20), though tanh(20) is 1 here
    assert log_prob.item() == pytest.approx(20 - 0.5 * math.log(2 * math.pi) + 2 * (20 - math.log(2)), abs=5)


def test_sac_by_hand_where_the_policy_is_all_but_certain() -> None:
    alg = sac(log_std=-10.0, actor_lr=0.0)
    torch.manual_seed(0)
    critic_loss, actor_loss = alg.learn(*TRANSITIONS)
    torch.manual_seed(0)
    with torch.no_grad():
        next_action, next_log_prob = alg.sample(TRANSITIONS[3])
    assert next_action.flatten().tolist() == pytest.approx([math.tanh(0.5)] * 2, abs=1e-3)
    value = min(6 + 2 * math.tanh(0.5), 8 + math.tanh(0.5)) - 0.2 * next_log_prob[0].item()
    expected = sum((4 - target) ** 2 + (4.5 - target) ** 2 for target in (1 + 0.5 * value, 1)) / 2
    assert critic_loss.item() == pytest.approx(expected, rel=1e-3)
    assert actor_loss is not None


def test_alpha_is_the_price_of_an_unlikely_action() -> None:
    cheap, dear = sac(alpha=0.0), sac(alpha=1.0)
    losses = []
    for alg in (cheap, dear):
        torch.manual_seed(0)
        losses.append(alg._actor_loss(torch.ones(4, 1)).item())
    torch.manual_seed(0)
    _, log_prob = cheap.sample(torch.ones(4, 1))
    assert losses[1] - losses[0] == pytest.approx(log_prob.mean().item(), rel=1e-4)


# --- what is wrong is said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "lacks"),
    [
        (lambda: algorithms.DQN(Model(), gamma=0.9, lr=0.1), r"DQN calls model.forward\(\), which Model does not define"),
        (lambda: algorithms.DDQN(Model(), gamma=0.9, lr=0.1), "DDQN calls model.forward"),
        (lambda: algorithms.PolicyGradient(Model(), lr=0.1), "PolicyGradient calls model.forward"),
        (lambda: algorithms.A2C(Values([1.0]), CONFIG), r"A2C calls model.policy\(\), which Values does not define"),
        (lambda: algorithms.PPO(Values([1.0])), "PPO calls model.policy"),
        (lambda: impala(Values([1.0]), 2), "IMPALA calls model.policy"),
        (lambda: algorithms.SAC(Values([1.0]), **OFF_POLICY, alpha=0.2), "SAC calls model.policy"),
        (
            lambda: algorithms.DQN(nn.Linear(1, 2), gamma=0.9, lr=0.1),
            "DQN needs a parl_lite.Model, not Linear: derive your network",
        ),
        (lambda: algorithms.DDPG(ActorCritic([[0.0]], [[0.0]]), **OFF_POLICY), "DDPG calls model.get_actor_params"),
    ],
)
def test_a_model_without_a_method_is_refused_when_the_algorithm_is_made(make: Callable[[], Algorithm], lacks: str) -> None:
    with pytest.raises(TypeError, match=lacks):
        make()


def test_an_algorithm_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'QMIX'; it has A2C, DDPG, DDQN"):
        algorithms.QMIX  # noqa: B018


# --- each learns, and goes on bit by bit ---------------------------------------------------------------------


class Twin(ActorCritic):
    """The model of an actor-critic whose `forward` gives probabilities, for policy gradient, or values, for DQN."""

    def __init__(self, probabilities: bool = False) -> None:
        super().__init__([[0.0, 0.0]] * 2, [[0.0]] * 2)
        self.probabilities = probabilities

    def forward(self, obs: Tensor) -> Tensor:
        return self.actor(obs).softmax(-1) if self.probabilities else self.actor(obs)


Data = Mapping[str, Tensor]


def right_or_wrong(generator: torch.Generator, n: int) -> Data:
    """Return n one-step episodes of a uniform policy: reward 1 where the action is the number of the state."""
    state, action = torch.randint(2, (n,), generator=generator), torch.randint(2, (n,), generator=generator)
    return {"obs": torch.eye(2)[state], "action": action, "reward": (state == action).float(), "end": torch.ones(n)}


def learn_ppo(alg: Any, d: Data) -> Any:
    old = torch.full_like(d["reward"], math.log(0.5))
    return alg.learn(d["obs"], d["action"], torch.zeros_like(old), d["reward"], old, d["reward"])


DISCRETE: dict[str, tuple[Callable[[], Any], Callable[[Any, Data], Any]]] = {
    "PolicyGradient": (
        lambda: algorithms.PolicyGradient(Twin(probabilities=True), lr=0.1),
        lambda alg, d: alg.learn(d["obs"], d["action"], d["reward"]),
    ),
    "DQN": (
        lambda: algorithms.DQN(Twin(), gamma=0.9, lr=0.1),
        lambda alg, d: alg.learn(d["obs"], d["action"], d["reward"], d["obs"], d["end"]),
    ),
    "DDQN": (
        lambda: algorithms.DDQN(Twin(), gamma=0.9, lr=0.1),
        lambda alg, d: alg.learn(d["obs"], d["action"], d["reward"], d["obs"], d["end"]),
    ),
    "A2C": (
        lambda: algorithms.A2C(Twin(), CONFIG),
        lambda alg, d: alg.learn(d["obs"], d["action"], d["reward"] - alg.value(d["obs"]).detach(), d["reward"], 0.1, -0.01),
    ),
    "PPO": (lambda: algorithms.PPO(Twin(), initial_lr=0.1), learn_ppo),
    "IMPALA": (
        lambda: impala(Twin(), 8),
        lambda alg, d: alg.learn(d["obs"], d["action"], torch.zeros(len(d["obs"]), 2), d["reward"], d["end"], 0.1, -0.01),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_it_learns_to_name_the_state(name: str) -> None:
    make, learn = DISCRETE[name]
    alg, generator = make(), torch.Generator().manual_seed(0)
    for _ in range(60):
        learn(alg, right_or_wrong(generator, 32))
    gap = alg.model.actor.weight.detach()
    assert gap[0, 0] - gap[1, 0] > 0.5 and gap[1, 1] - gap[0, 1] > 0.5, gap
    best = alg.predict(torch.eye(2))
    assert (best.argmax(-1) if best.ndim == 2 and best.shape[1] == 2 else best.flatten()).tolist() == [0, 1]


CONTINUOUS: dict[str, Callable[[], Any]] = {
    "DDPG": lambda: algorithms.DDPG(Continuous("DDPG", 32), **OFF_POLICY),
    "TD3": lambda: algorithms.TD3(Continuous("TD3", 32), **OFF_POLICY),
    "SAC": lambda: algorithms.SAC(Continuous("SAC", 32), **OFF_POLICY, alpha=0.01),
}


def near_or_far(generator: torch.Generator, n: int = 64) -> list[Tensor]:
    """Return n one-step episodes: the reward is minus the squared distance of the action from half the state."""
    state, action = (2 * torch.rand(2, n, 1, generator=generator) - 1).unbind()
    return [state, action, -((action - state / 2) ** 2), state, torch.ones(n, 1)]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_it_learns_to_halve_the_state(name: str) -> None:
    torch.manual_seed(0)
    alg, generator = CONTINUOUS[name](), torch.Generator().manual_seed(0)
    for _ in range(300):
        alg.learn(*near_or_far(generator))
    state = torch.linspace(-1, 1, 5)[:, None]
    assert (alg.predict(state) - state / 2).abs().max() < 0.15


@pytest.mark.parametrize("name", [*DISCRETE, *CONTINUOUS])
def test_it_goes_on_bit_by_bit_from_a_checkpoint(name: str, tmp_path: Any) -> None:
    def update(alg: Any, generator: torch.Generator) -> None:
        if name in DISCRETE:
            DISCRETE[name][1](alg, right_or_wrong(generator, 16))
        else:
            alg.learn(*near_or_far(generator, 16))

    make = DISCRETE[name][0] if name in DISCRETE else CONTINUOUS[name]
    agent, generator = Agent(make()), torch.Generator().manual_seed(0)
    for _ in range(3):
        update(agent.alg, generator)
    agent.save(tmp_path / "agent.ckpt")
    state = generator.get_state()
    for _ in range(3):
        update(agent.alg, generator)
    other = Agent(make())
    other.restore(tmp_path / "agent.ckpt")
    generator.set_state(state)
    for _ in range(3):
        update(other.alg, generator)
    for key, weight in agent.get_weights().items():
        np.testing.assert_array_equal(other.get_weights()[key], weight)
    if hasattr(agent.alg, "target_model"):
        for key, weight in agent.alg.target_model.get_weights().items():
            np.testing.assert_array_equal(other.alg.target_model.get_weights()[key], weight)


def test_an_agent_as_it_is_takes_the_batches_of_a_replay_memory() -> None:
    agent = Agent(algorithms.DQN(Values([0.0, 0.0]), gamma=0.9, lr=0.1))
    batch = (
        np.ones((4, 1), np.float32),
        np.zeros(4, np.int32),
        np.ones(4, np.float32),
        np.ones((4, 1), np.float32),
        np.ones(4, bool),
    )
    assert agent.learn(*batch) == pytest.approx(1.0)
    assert agent.predict(np.ones((1, 1))).shape == (1, 2)
