"""PARL's MuJoCo examples (DDPG, TD3, SAC) on Pendulum: warm-up, replay, a policy in [-1, 1], evaluation, save and restore."""

import sys

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import parl_lite as parl
from parl_lite.algorithms import DDPG, SAC, TD3
from parl_lite.utils import ReplayMemory, logger, summary

WARMUP_STEPS = 200
TRAIN_STEPS = 260
BATCH_SIZE = 64
MEMORY_SIZE = int(1e4)
RATES = {"gamma": 0.99, "tau": 0.005, "actor_lr": 3e-4, "critic_lr": 3e-4}


class Critic(parl.Model):
    def __init__(self, obs_dim, action_dim):
        super(Critic, self).__init__()
        self.l1 = nn.Linear(obs_dim + action_dim, 64)
        self.l2 = nn.Linear(64, 1)

    def forward(self, obs, action):
        return self.l2(F.relu(self.l1(torch.cat([obs, action], 1))))


class PendulumModel(parl.Model):
    """The policy of DDPG and TD3; two critics."""

    def __init__(self, obs_dim, action_dim):
        super(PendulumModel, self).__init__()
        self.actor_model = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU())
        self.mean_linear = nn.Linear(64, action_dim)
        self.std_linear = nn.Linear(64, action_dim)
        self.critic_model = Critic(obs_dim, action_dim)
        self.critic_model2 = Critic(obs_dim, action_dim)

    def policy(self, obs):
        return torch.tanh(self.mean_linear(self.actor_model(obs)))

    def value(self, obs, action):
        return self.critic_model(obs, action), self.critic_model2(obs, action)

    def Q1(self, obs, action):
        return self.critic_model(obs, action)

    def get_actor_params(self):
        return [p for layer in (self.actor_model, self.mean_linear, self.std_linear) for p in layer.parameters()]

    def get_critic_params(self):
        return [*self.critic_model.parameters(), *self.critic_model2.parameters()]


class SingleModel(PendulumModel):
    def value(self, obs, action):
        return self.critic_model(obs, action)


class StochasticModel(PendulumModel):
    def policy(self, obs):
        hidden = self.actor_model(obs)
        return self.mean_linear(hidden), torch.clamp(self.std_linear(hidden), min=-20.0, max=2.0)


class PendulumAgent(parl.Agent):
    def __init__(self, algorithm, act_dim, expl_noise=0.1):
        super(PendulumAgent, self).__init__(algorithm)
        self.act_dim, self.expl_noise = act_dim, expl_noise
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.alg.sync_target(decay=0)

    def predict(self, obs):
        obs = torch.FloatTensor(obs.reshape(1, -1)).to(self.device)
        return self.alg.predict(obs).cpu().detach().numpy().flatten()

    def sample(self, obs):
        if isinstance(self.alg, SAC):
            obs = torch.FloatTensor(obs.reshape(1, -1)).to(self.device)
            action, _ = self.alg.sample(obs)
            return action.cpu().detach().numpy().flatten()
        noise = np.random.normal(0, self.expl_noise, size=self.act_dim)
        return (self.predict(obs) + noise).clip(-1, 1)

    def learn(self, obs, action, reward, next_obs, terminal):
        terminal = np.expand_dims(terminal, -1)
        reward = np.expand_dims(reward, -1)
        columns = (obs, action, reward, next_obs, terminal)
        return self.alg.learn(*(torch.FloatTensor(column).to(self.device) for column in columns))


def make_agent(name, obs_dim, act_dim):
    if name == "SAC":
        return PendulumAgent(SAC(StochasticModel(obs_dim, act_dim), alpha=0.2, **RATES), act_dim)
    if name == "TD3":
        return PendulumAgent(TD3(PendulumModel(obs_dim, act_dim), policy_freq=2, **RATES), act_dim)
    return PendulumAgent(DDPG(SingleModel(obs_dim, act_dim), **RATES), act_dim)


def main(name):
    np.random.seed(1)
    torch.manual_seed(1)
    env = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), -1.0, 1.0)  # PARL's ActionMappingWrapper
    env.action_space.seed(1)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    agent = make_agent(name, obs_dim, act_dim)
    rpm = ReplayMemory(max_size=MEMORY_SIZE, obs_dim=obs_dim, act_dim=act_dim)
    obs, _ = env.reset(seed=1)
    losses = []
    for _step in range(TRAIN_STEPS):
        action = env.action_space.sample() if rpm.size() < WARMUP_STEPS else agent.sample(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rpm.append(obs, action, reward, next_obs, float(terminated))
        obs = env.reset()[0] if terminated or truncated else next_obs
        if rpm.size() >= WARMUP_STEPS:
            critic_loss, _ = agent.learn(*rpm.sample_batch(BATCH_SIZE))
            losses.append(critic_loss.item())
            summary.add_scalar("train/critic_loss", losses[-1], rpm.size())
    agent.save("./" + name + "_model/actor.ckpt")
    other = make_agent(name, obs_dim, act_dim)
    other.restore("./" + name + "_model/actor.ckpt")
    logger.info("{}: critic loss {}".format(name, losses[-1]))
    same = (other.predict(obs) == agent.predict(obs)).all()
    print("RESULT", name, np.mean(losses[:10]), np.mean(losses[-10:]), bool(same))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
