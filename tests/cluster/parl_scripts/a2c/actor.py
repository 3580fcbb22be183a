from collections import defaultdict

import gymnasium as gym
import numpy as np
from cartpole_agent import Agent
from cartpole_model import ActorCritic

import parl_lite as parl
from parl_lite.algorithms import A2C
from parl_lite.utils.rl_utils import calc_gae


@parl.remote_class(wait=False)
class Actor(object):
    def __init__(self, config, rank):
        self.config = config
        np.random.seed(rank)
        self.envs = [gym.make(config["env_name"]) for _ in range(config["env_num"])]
        self.obs_batch = [env.reset(seed=100 * rank + i)[0] for i, env in enumerate(self.envs)]
        self.returns, self.episode_rewards = np.zeros(config["env_num"]), []
        config["obs_shape"] = self.envs[0].observation_space.shape
        config["act_dim"] = int(self.envs[0].action_space.n)
        model = ActorCritic(config["obs_shape"][0], config["act_dim"])
        self.agent = Agent(A2C(model, config), config)

    def step(self, env_id, action):
        obs, reward, terminated, truncated, _ = self.envs[env_id].step(int(action))
        self.returns[env_id] += reward
        if terminated or truncated:
            self.episode_rewards.append(self.returns[env_id])
            self.returns[env_id] = 0
            obs, _ = self.envs[env_id].reset()
        return obs, reward, terminated or truncated

    def sample(self):
        sample_data = defaultdict(list)
        env_sample_data = defaultdict(lambda: defaultdict(list))
        for i in range(self.config["sample_batch_steps"]):
            actions, values = self.agent.sample(np.stack(self.obs_batch))
            for env_id in range(self.config["env_num"]):
                data = env_sample_data[env_id]
                data["obs"].append(self.obs_batch[env_id])
                data["actions"].append(actions[env_id])
                data["values"].append(values[env_id])
                self.obs_batch[env_id], reward, done = self.step(env_id, actions[env_id])
                data["rewards"].append(reward)
                if done or i == self.config["sample_batch_steps"] - 1:
                    next_value = 0 if done else self.agent.value(self.obs_batch[env_id][None])[0]
                    gamma, lam = self.config["gamma"], self.config["lambda"]
                    advantages = calc_gae(data["rewards"], data["values"], next_value, gamma, lam)
                    sample_data["obs"].extend(data["obs"])
                    sample_data["actions"].extend(data["actions"])
                    sample_data["advantages"].extend(advantages)
                    sample_data["target_values"].extend(advantages + data["values"])
                    env_sample_data[env_id] = defaultdict(list)
        return {key: np.stack(value) for key, value in sample_data.items()}

    def get_metrics(self):
        metrics = {"episode_rewards": self.episode_rewards}
        self.episode_rewards = []
        return metrics

    def set_weights(self, params):
        self.agent.set_weights(params)
