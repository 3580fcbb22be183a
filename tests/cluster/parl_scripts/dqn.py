"""PARL's DQN example: CartPole with a replay memory and exploration that fades, in one process."""

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import parl_lite as parl
from parl_lite.algorithms import DQN
from parl_lite.utils import ReplayMemory, logger
from parl_lite.utils.scheduler import LinearDecayScheduler

LEARN_FREQ = 3
MEMORY_SIZE = 20000
MEMORY_WARMUP_SIZE = 200
BATCH_SIZE = 32
LEARNING_RATE = 0.001
GAMMA = 0.99
EPISODES = 120


class CartpoleModel(parl.Model):
    def __init__(self, obs_dim, act_dim):
        super(CartpoleModel, self).__init__()
        self.fc1 = nn.Linear(obs_dim, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, act_dim)

    def forward(self, obs):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(obs)))))


class CartpoleAgent(parl.Agent):
    def __init__(self, algorithm, act_dim):
        super(CartpoleAgent, self).__init__(algorithm)
        self.act_dim = act_dim
        self.global_step = 0
        self.update_target_steps = 50
        self.explore = LinearDecayScheduler(1.0, 1000)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def sample(self, obs):
        if np.random.random() < max(0.02, self.explore.step()):
            return np.random.randint(self.act_dim)
        return self.predict(obs)

    def predict(self, obs):
        obs = torch.tensor(obs, dtype=torch.float, device=self.device)
        return self.alg.predict(obs).argmax().item()

    def learn(self, obs, act, reward, next_obs, terminal):
        if self.global_step % self.update_target_steps == 0:
            self.alg.sync_target()
        self.global_step += 1
        act, reward, terminal = (np.expand_dims(column, -1) for column in (act, reward, terminal))
        obs = torch.tensor(obs, dtype=torch.float, device=self.device)
        next_obs = torch.tensor(next_obs, dtype=torch.float, device=self.device)
        act = torch.tensor(act, dtype=torch.long, device=self.device)
        reward = torch.tensor(reward, dtype=torch.float, device=self.device)
        terminal = torch.tensor(terminal, dtype=torch.float, device=self.device)
        return self.alg.learn(obs, act, reward, next_obs, terminal)


def run_train_episode(agent, env, rpm, seed):
    total_reward, step = 0, 0
    obs, _ = env.reset(seed=seed)
    while True:
        step += 1
        action = agent.sample(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rpm.append(obs, action, reward, next_obs, terminated)
        if rpm.size() > MEMORY_WARMUP_SIZE and step % LEARN_FREQ == 0:
            agent.learn(*rpm.sample_batch(BATCH_SIZE))
        total_reward += reward
        obs = next_obs
        if terminated or truncated:
            return total_reward


def main():
    np.random.seed(1)
    torch.manual_seed(1)
    env = gym.make("CartPole-v1")
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.n
    rpm = ReplayMemory(MEMORY_SIZE, obs_dim, 0)
    agent = CartpoleAgent(DQN(CartpoleModel(obs_dim, act_dim), gamma=GAMMA, lr=LEARNING_RATE), act_dim=act_dim)
    returns = []
    while len(returns) < EPISODES and rpm.size() < 2200:
        returns.append(run_train_episode(agent, env, rpm, seed=len(returns)))
    logger.info("episode:{} reward:{}".format(len(returns), returns[-1]))
    rpm.save("rpm")
    print("RESULT", np.mean(returns[:10]), np.mean(returns[-10:]), rpm.size())


if __name__ == "__main__":
    main()
