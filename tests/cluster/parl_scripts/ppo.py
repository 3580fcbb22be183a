"""PARL's PPO example: each environment in an actor of its own, stepped together by futures; discrete or continuous actions."""

import sys

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

import parl_lite as parl
from parl_lite.algorithms import PPO
from parl_lite.utils import logger
from parl_lite.utils.rl_utils import calc_gae
from parl_lite.utils.scheduler import LinearDecayScheduler

CONTINUOUS = "--continuous_action" in sys.argv
CONFIG = {"env": "Pendulum-v1" if CONTINUOUS else "CartPole-v1", "env_num": 2, "step_nums": 128, "num_minibatches": 4}
CONFIG |= {"update_epochs": 4, "num_updates": 2 if CONTINUOUS else 10, "gamma": 0.99, "gae_lambda": 0.95, "initial_lr": 3e-3}


class DiscreteModel(parl.Model):
    def __init__(self, obs_dim, act_dim):
        super(DiscreteModel, self).__init__()
        self.fc_pi = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, act_dim))
        self.fc_v = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 1))

    def value(self, obs):
        return self.fc_v(obs)

    def policy(self, obs):
        return self.fc_pi(obs)


class ContinuousModel(DiscreteModel):
    def __init__(self, obs_dim, act_dim):
        super(ContinuousModel, self).__init__(obs_dim, act_dim)
        self.fc_pi_std = nn.Parameter(torch.zeros(1, act_dim))

    def policy(self, obs):
        action_mean = self.fc_pi(obs)
        return action_mean, torch.exp(self.fc_pi_std.expand_as(action_mean))


class PPOAgent(parl.Agent):
    def __init__(self, algorithm, config):
        super(PPOAgent, self).__init__(algorithm)
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.lr_scheduler = LinearDecayScheduler(config["initial_lr"], config["num_updates"])

    def predict(self, obs):
        action = self.alg.predict(torch.FloatTensor(obs).unsqueeze(0).to(self.device))
        return action.cpu().detach().numpy().flatten()

    def sample(self, obs):
        found = self.alg.sample(torch.FloatTensor(obs).to(self.device))
        return tuple(column.cpu().detach().numpy() for column in found)

    def value(self, obs):
        return self.alg.value(torch.FloatTensor(obs).to(self.device)).cpu().detach().numpy()

    def learn(self, rollout):
        lr = self.lr_scheduler.step(step_num=1)
        n = len(rollout["obs"])
        indexes = np.arange(n)
        for _ in range(self.config["update_epochs"]):
            np.random.shuffle(indexes)
            for rows in np.split(indexes, self.config["num_minibatches"]):
                batch = {name: torch.from_numpy(column[rows]).to(self.device) for name, column in rollout.items()}
                losses = self.alg.learn(
                    batch["obs"], batch["action"], batch["value"], batch["return"], batch["logprob"], batch["adv"], lr
                )
        return losses


@parl.remote_class(wait=False)
class ParallelEnv(object):
    def __init__(self, env_name, seed):
        self.env = gym.make(env_name)
        self.seed, self.total, self.finished = seed, 0.0, []

    def reset(self):
        return self.env.reset(seed=self.seed)[0].astype("float32")

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self.total += reward
        done = terminated or truncated
        if done:
            self.finished.append(self.total)
            self.total = 0.0
            obs, _ = self.env.reset()
        return obs.astype("float32"), float(reward), done


def collect(agent, envs, obs, config):
    rows = {name: [] for name in ("obs", "action", "logprob", "value", "reward", "done")}
    for _ in range(config["step_nums"]):
        value, action, logprob, _ = agent.sample(obs)
        act = np.clip(action, -2, 2) if CONTINUOUS else action
        stepped = [future.get() for future in [env.step(one) for env, one in zip(envs, act)]]
        next_obs, reward, done = zip(*stepped)
        row = (obs, action, logprob, value.flatten(), np.array(reward, "float32"), np.array(done))
        for name, column in zip(rows, row):
            rows[name].append(column)
        obs = np.stack(next_obs)
    return {name: np.stack(column) for name, column in rows.items()}, obs


def compute_returns(rows, last_value, config):
    adv = np.zeros_like(rows["reward"])
    for i in range(adv.shape[1]):
        start = 0
        for end in [*(np.flatnonzero(rows["done"][:, i]) + 1), len(adv)]:
            following = 0 if rows["done"][end - 1, i] else last_value[i] if end > start else 0
            piece = rows["reward"][start:end, i], rows["value"][start:end, i], following
            adv[start:end, i] = calc_gae(*piece, config["gamma"], config["gae_lambda"]) if end > start else 0
            start = end
    rollout = {name: rows[name] for name in ("obs", "action", "logprob", "value")} | {"adv": adv, "return": adv + rows["value"]}
    return {name: column.reshape(-1, *column.shape[2:]) for name, column in rollout.items()}


def main():
    np.random.seed(1)
    torch.manual_seed(1)
    parl.connect()
    env = gym.make(CONFIG["env"])
    obs_dim = env.observation_space.shape[0]
    act_dim = env.action_space.shape[0] if CONTINUOUS else int(env.action_space.n)
    model = (ContinuousModel if CONTINUOUS else DiscreteModel)(obs_dim, act_dim)
    ppo = PPO(model, clip_param=0.2, entropy_coef=0.01, initial_lr=CONFIG["initial_lr"], continuous_action=CONTINUOUS)
    agent = PPOAgent(ppo, CONFIG)
    envs = [ParallelEnv(CONFIG["env"], seed) for seed in range(CONFIG["env_num"])]
    obs = np.stack([future.get() for future in [env.reset() for env in envs]])
    for _ in range(CONFIG["num_updates"]):
        rows, obs = collect(agent, envs, obs, CONFIG)
        losses = agent.learn(compute_returns(rows, agent.value(obs).flatten(), CONFIG))
    logger.info("losses {}".format(losses))
    returns = [env.finished for env in envs]
    early, late = (np.mean([np.mean(one[part]) for one in returns]) for part in (slice(0, 5), slice(-5, None)))
    print("RESULT", early, late, bool(np.isfinite(losses).all()))


if __name__ == "__main__":
    main()
