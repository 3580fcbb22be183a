"""Networks of action values: shapes over any leading axes, what dueling, noise and quantiles mean, states that are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from value_loops import Dense, Plain

from parl_lite.agents.continuous_networks import (
    DeterministicActorCritic,
    DistributionalActorCritic,
    GaussianActorCritic,
    ParallelLinear,
)
from parl_lite.agents.encoders import Trunk, flat_encoder
from parl_lite.agents.models import NetworkSettings
from parl_lite.agents.q_networks import (
    CategoricalQNetwork,
    Head,
    ImplicitQuantileNetwork,
    NoisyLinear,
    QNetwork,
    QuantileQNetwork,
    RecurrentQNetwork,
    midpoints,
)
from parl_lite.agents.spaces import ObsSpec

IMAGES = {
    "pixels": (ObsSpec((4, 84, 84), np.dtype(np.uint8)), 512),
    "MinAtar": (ObsSpec((10, 10, 4), np.dtype(bool)), 128),
    "vector": (ObsSpec((7,), np.dtype(np.float32)), 64),
    "tiny": (ObsSpec((2, 2, 2), np.dtype(np.float32)), 64),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_a_trunk_has_features_of_any_observation_with_any_leading_axes(kind):
    spec, n_features = IMAGES[kind]
    trunk = Trunk(spec, NetworkSettings())
    obs = torch.zeros(spec.shape, dtype=torch.from_numpy(np.zeros(1, spec.dtype)).dtype)
    assert trunk.n_features == n_features
    assert trunk(obs.expand(3, 2, *obs.shape)).shape == (3, 2, n_features)


def test_the_network_for_minatar_is_the_papers():
    # 16 filters of 3x3 over 4 channels, then 16 * 8 * 8 inputs of 128 units
    trunk = Trunk(IMAGES["MinAtar"][0], NetworkSettings())
    assert sum(parameter.numel() for parameter in trunk.parameters()) == 16 * (4 * 9 + 1) + 128 * (16 * 64 + 1)


def test_a_flat_encoder_joins_what_an_observation_is_made_of_and_has_no_parameters():
    layout = {"place": ObsSpec((2, 2), np.dtype(np.float32)), "goal": ObsSpec((), np.dtype(np.int64), sizes=(3,), starts=(0,))}
    encoder = flat_encoder(layout)
    obs = {"place": torch.arange(4.0).reshape(1, 2, 2), "goal": torch.tensor([2])}
    assert encoder(obs).tolist() == [[0, 1, 2, 3, 0, 0, 1]]
    assert (encoder.n_features, list(encoder.parameters())) == (7, [])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_every_network_has_values_of_all_actions(dueling, noisy):
    head = {"hidden_size": 8, "dueling": dueling, "noisy": noisy}
    networks = (
        QNetwork(Dense(3, 8), 4, **head),
        CategoricalQNetwork(Dense(3, 8), 4, -1.0, 1.0, 5, **head),
        QuantileQNetwork(Dense(3, 8), 4, 7, **head),
        ImplicitQuantileNetwork(Dense(3, 8), 4, **head),
    )
    for network in networks:
        assert network(torch.randn(5, 2, 3)).shape == (5, 2, 4)


def test_a_dueling_head_adds_value_and_centred_advantage():
    head = Head(1, 2, dueling=True)
    with torch.no_grad():
        for stream, bias in ((head.advantage, [1.0, 4.0]), (head.value, [10.0])):
            stream.weight.zero_()
            stream.bias.copy_(torch.tensor(bias))
    assert head(torch.zeros(1, 1)).squeeze(-1).tolist() == [[8.5, 11.5]]  # 10 + (1, 4) - 2.5


def test_noise_is_drawn_anew_by_each_call_and_is_one_for_the_batch():
    layer = NoisyLinear(3, 2)
    inputs = torch.ones(4, 3)
    once, again = layer(inputs), layer(inputs)
    assert not torch.equal(once, again)
    assert torch.equal(once[0], once[3])
    layer.eval()
    assert torch.equal(layer(inputs), inputs @ layer.weight.T + layer.bias)


def test_the_noise_is_factorised():
    # outputs x . (w + s f(e_out) f(e_in)) + b + s f(e_out): with w = b = 0, s = 1 they are f(e_out) (x . f(e_in) + 1)
    layer = NoisyLinear(2, 3)
    with torch.no_grad():
        for parameter, value in ((layer.weight, 0), (layer.bias, 0), (layer.weight_sigma, 1), (layer.bias_sigma, 1)):
            parameter.fill_(value)
    torch.manual_seed(0)
    outputs = layer(torch.tensor([[2.0, 5.0]]))
    torch.manual_seed(0)
    e_in, e_out = torch.randn(2), torch.randn(3)
    f_in, f_out = e_in.sign() * e_in.abs().sqrt(), e_out.sign() * e_out.abs().sqrt()
    torch.testing.assert_close(outputs[0], f_out * (2 * f_in[0] + 5 * f_in[1] + 1))


def test_the_noise_begins_as_the_paper_says():
    layer = NoisyLinear(16, 4, sigma=0.5)
    assert (layer.weight_sigma == 0.125).all() and (layer.bias_sigma == 0.125).all()  # sigma / sqrt(16)
    assert layer.weight.abs().max() <= 0.25


def test_the_expected_return_is_the_distributions():
    network = CategoricalQNetwork(Plain(1), 2, -1.0, 1.0, 3)
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    with torch.no_grad():
        network.head.advantage.weight.zero_()
        network.head.advantage.bias.copy_(probs.log().clamp(min=-50).flatten())
    assert network(torch.zeros(1)).tolist() == pytest.approx([-0.5, 0.6])
    torch.testing.assert_close(network.log_probs(torch.zeros(1)).exp(), probs)


def test_quantiles_are_in_the_middles():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_the_cosine_embedding_by_hand():
    network = ImplicitQuantileNetwork(Plain(2), 1, n_cosines=3)
    seen = []
    network.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    quantiles = network.quantiles(torch.zeros(1, 2), torch.tensor([[0.5, 1.0]]))
    assert quantiles.shape == (1, 1, 2)
    expected = torch.tensor([[[1, math.cos(math.pi / 2), math.cos(math.pi)], [1, math.cos(math.pi), math.cos(2 * math.pi)]]])
    torch.testing.assert_close(seen[0], expected, atol=1e-6, rtol=0)


def test_a_recurrent_network_goes_on_from_its_state_and_forgets_at_a_first_row():
    torch.manual_seed(0)
    network = RecurrentQNetwork(Dense(3, 8), 2, n_context=1, lstm_size=4)
    obs, context, first = torch.randn(6, 2, 3), torch.randn(6, 2, 1), torch.zeros(6, 2, dtype=torch.bool)
    first[4, 1] = True
    whole, end = network.unroll(obs, context, first, network.initial_state(2))
    state = network.initial_state(2)
    for t in range(6):
        row, state = network.unroll(obs[t : t + 1], context[t : t + 1], first[t : t + 1], state)
        torch.testing.assert_close(row[0], whole[t])
    torch.testing.assert_close(state, end)
    anew, _ = network.unroll(obs[4:], context[4:], first[4:], network.initial_state(2))
    torch.testing.assert_close(anew[:, 1], whole[4:, 1])
    assert not torch.allclose(anew[:, 0], whole[4:, 0])


def test_parallel_layers_are_independent():
    torch.manual_seed(0)
    layer = ParallelLinear(2, 3, 4)
    inputs = torch.randn(5, 3)
    for outputs, weight, bias in zip(layer(inputs), layer.weight, layer.bias, strict=True):
        torch.testing.assert_close(outputs, inputs @ weight + bias)


def test_actors_stay_in_bounds_and_critics_have_a_value_each():
    obs, action = torch.randn(5, 3) * 100, torch.zeros(5, 2)
    twin = DeterministicActorCritic(Plain(3), 2, (8, 8), n_critics=2)
    assert twin.policy(obs).shape == (5, 2) and twin.policy(obs).abs().max() <= 1
    assert twin.value(obs, action).shape == (2, 5)
    distributional = DistributionalActorCritic(Plain(3), 2, (8,), low=0.0, high=2.0, n_atoms=3)
    assert distributional.log_probs(obs, action).shape == (5, 3)
    assert distributional.value(obs, action).shape == (1, 5)
    gaussian = GaussianActorCritic(Plain(3), 2, (8,))
    mean, log_std = gaussian.policy(obs * 1e4)
    assert mean.shape == log_std.shape == (5, 2) and log_std.max() <= 2 and log_std.min() >= -20


def test_actor_and_critics_share_no_parameters_and_are_all():
    for network in (
        DeterministicActorCritic(Plain(3), 2, (8,)),
        DistributionalActorCritic(Plain(3), 2, (8,), low=0.0, high=1.0),
        GaussianActorCritic(Plain(3), 2, (8,)),
    ):
        named = [*network.get_actor_params(), *network.get_critic_params()]
        assert len({id(parameter) for parameter in named}) == len(named) == len(list(network.parameters()))
