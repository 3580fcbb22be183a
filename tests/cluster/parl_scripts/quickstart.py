"""PARL's QuickStart: policy gradient on CartPole, in one process."""

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import parl_lite as parl
from parl_lite.utils import logger

EPISODES = 60


class CartpoleModel(parl.Model):
    def __init__(self, obs_dim, act_dim):
        super(CartpoleModel, self).__init__()
        self.fc1 = nn.Linear(obs_dim, act_dim * 10)
        self.fc2 = nn.Linear(act_dim * 10, act_dim)

    def forward(self, x):
        return F.softmax(self.fc2(torch.tanh(self.fc1(x))), dim=-1)


class CartpoleAgent(parl.Agent):
    def __init__(self, algorithm):
        super(CartpoleAgent, self).__init__(algorithm)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def sample(self, obs):
        prob = self.alg.predict(torch.tensor(obs, dtype=torch.float, device=self.device)).cpu()
        prob = prob.data.numpy().astype(float)
        return np.random.choice(len(prob), 1, p=prob / prob.sum())[0]

    def predict(self, obs):
        prob = self.alg.predict(torch.tensor(obs, dtype=torch.float, device=self.device))
        return prob.argmax(dim=-1).item()

    def learn(self, obs, action, reward):
        obs = torch.tensor(obs, dtype=torch.float, device=self.device)
        action = torch.tensor(action, dtype=torch.long, device=self.device)
        reward = torch.tensor(reward, dtype=torch.float, device=self.device)
        return self.alg.learn(obs, action, reward).item()


def run_episode(env, agent, act, seed=None):
    obs_list, action_list, reward_list = [], [], []
    obs, _ = env.reset(seed=seed)
    done = False
    while not done:
        obs_list.append(obs)
        action = act(obs)
        action_list.append(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        reward_list.append(reward)
        done = terminated or truncated
    return obs_list, action_list, reward_list


def main():
    np.random.seed(1)
    torch.manual_seed(1)
    env = gym.make("CartPole-v1")
    model = CartpoleModel(env.observation_space.shape[0], env.action_space.n)
    agent = CartpoleAgent(parl.algorithms.PolicyGradient(model, lr=0.01))
    returns = []
    for episode in range(EPISODES):
        obs_list, action_list, reward_list = run_episode(env, agent, agent.sample, seed=episode)
        returns.append(sum(reward_list))
        if episode % 50 == 0:
            logger.info("Episode {}, Reward Sum {}.".format(episode, sum(reward_list)))
        batch_reward = np.cumsum(reward_list[::-1])[::-1]
        batch_reward = batch_reward - batch_reward.mean()
        agent.learn(np.array(obs_list), np.array(action_list), batch_reward.copy())
    agent.save("./model_dir/model.ckpt")
    other = CartpoleAgent(parl.algorithms.PolicyGradient(CartpoleModel(4, 2), lr=0.01))
    other.restore("./model_dir/model.ckpt")
    same = agent.predict(obs_list[0]) == other.predict(obs_list[0])
    print("RESULT", np.mean(returns[:20]), np.mean(returns[-20:]), same)


if __name__ == "__main__":
    main()
