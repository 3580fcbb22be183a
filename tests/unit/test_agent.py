"""Agent: numpy at the border, and checkpoints from which training goes on bit by bit, in another process too."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from parl_lite import checkpoint
from parl_lite.agent import Agent
from parl_lite.algorithm import Algorithm
from parl_lite.errors import ParlError, SerializationError
from parl_lite.model import Model


class Net(Model):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.dropout(obs))


class Regression(Algorithm):
    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda update: 0.99**update)

    def predict(self, obs: torch.Tensor) -> torch.Tensor:
        return self.model(obs)

    def sample(self, obs: torch.Tensor) -> torch.Tensor:
        return self.model(obs) + torch.randn(len(obs), 2)

    def learn(self, obs: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = (self.model(obs) - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return {"loss": loss}


class CountingAgent(Agent):
    """Sets an attribute before super().__init__(), as users do."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.env_steps = 0
        super().__init__(algorithm)

    def learn(self, obs, target):
        self.env_steps += len(obs)
        return super().learn(obs, target)


def new_agent() -> CountingAgent:
    return CountingAgent(Regression(Net()))


def seed_all() -> None:
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)


def update(agent: Agent, times: int) -> None:
    """Draw each batch from the global streams, and dropout from torch's: they must go on, too."""
    for _ in range(times):
        obs = np.random.standard_normal((4, 3)) + random.random()
        agent.learn(obs, torch.rand(4, 2))


def everything(agent: CountingAgent) -> bytes:
    optimizer = agent.alg.optimizer
    moments = [value.numpy().tobytes() for state in optimizer.state.values() for value in state.values()]
    weights = [array.tobytes() for array in agent.get_weights().values()]
    return pickle.dumps((weights, moments, optimizer.param_groups[0]["lr"], agent.env_steps, agent.sample(np.ones((1, 3)))))


def test_forty_updates_equal_twenty_saved_and_restored_in_a_new_process_and_twenty_more(tmp_path):
    seed_all()
    straight = new_agent()
    update(straight, 40)
    expected = everything(straight)
    seed_all()
    agent = new_agent()
    update(agent, 20)
    agent.save(tmp_path / "half.ckpt")
    command = [sys.executable, __file__, str(tmp_path / "half.ckpt"), str(tmp_path / "result")]
    subprocess.run(command, check=True, timeout=200)
    assert (tmp_path / "result").read_bytes() == expected


def test_arrays_go_in_and_out_and_reach_the_algorithm_as_float32_tensors():
    agent = new_agent()
    agent.eval()
    action = agent.predict(np.zeros((5, 3)))
    assert (type(action), action.dtype, action.shape) == (np.ndarray, np.float32, (5, 2))
    assert agent.sample(np.zeros((5, 3), dtype=np.float32)).shape == (5, 2)
    assert type(agent.learn(np.zeros((4, 3)), np.zeros((4, 2)))["loss"]) is float


def test_modes_reach_the_model():
    agent = new_agent()
    assert agent.training
    agent.eval()
    assert (agent.training, agent.alg.model.training) == (False, False)
    agent.train()
    assert (agent.training, agent.alg.model.training) == (True, True)


def test_an_agent_needs_no_super_init():
    class Bare(Agent):
        def __init__(self, algorithm):
            self.alg = algorithm

    agent = Bare(Regression(Net()))
    agent.set_weights({name: array + 1 for name, array in agent.get_weights().items()})
    assert agent.training


def test_without_an_algorithm_the_remedy_is_said():
    class Empty(Agent):
        def __init__(self):
            pass

    with pytest.raises(ParlError, match=r"Empty has no algorithm: call super\(\).__init__"):
        Empty().predict(np.zeros(3))


def test_weights_are_copies():
    agent = new_agent()
    agent.get_weights()["linear.bias"][:] = 100
    assert agent.alg.model.linear.bias.abs().max() < 1


def test_one_model_saved_alone_is_restored_alone(tmp_path):
    source, target = new_agent(), new_agent()
    source.save(tmp_path / "net", model=source.alg.model)
    target.restore(tmp_path / "net", model=target.alg.model)
    assert torch.equal(target.alg.model.linear.weight, source.alg.model.linear.weight)


def test_what_a_checkpoint_lacks_is_named(tmp_path):
    source, target = new_agent(), new_agent()
    source.save(tmp_path / "net", model=source.alg.model)
    with pytest.warns(UserWarning, match="holds a model only: optimisers, counters and random streams"):
        target.restore(tmp_path / "net")
    del source.env_steps
    source.save(tmp_path / "agent")
    with pytest.warns(UserWarning, match=r"not restored in full: env_steps \(int\) is not in the checkpoint"):
        target.restore(tmp_path / "agent")
    source.memory = object()
    with pytest.warns(UserWarning, match=r"lacks memory \(object\)"):
        source.save(tmp_path / "agent")


def test_the_wrong_kind_of_checkpoint_is_refused(tmp_path):
    agent = new_agent()
    agent.save(tmp_path / "agent")
    with pytest.raises(SerializationError, match="holds a whole agent: restore it without model="):
        agent.restore(tmp_path / "agent", model=agent.alg.model)
    checkpoint.save(tmp_path / "other", {"a": 1})
    with pytest.raises(SerializationError, match="not of an agent"):
        agent.restore(tmp_path / "other")


def resume(path: str, result: str) -> None:
    agent = new_agent()
    agent.restore(path)
    update(agent, 20)
    with open(result, "wb") as file:
        file.write(everything(agent))


if __name__ == "__main__":
    resume(*sys.argv[1:])
