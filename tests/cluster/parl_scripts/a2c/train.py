"""PARL's A2C example: actors on the cluster sample, the learner sums up, all in step."""

from collections import defaultdict

import gymnasium as gym
import numpy as np
import torch
from a2c_config import config
from actor import Actor
from cartpole_agent import Agent
from cartpole_model import ActorCritic

import parl_lite as parl
from parl_lite.algorithms import A2C
from parl_lite.utils import CSVLogger, logger, summary
from parl_lite.utils.time_stat import TimeStat
from parl_lite.utils.window_stat import WindowStat


class Learner(object):
    def __init__(self, config):
        self.config = config
        env = gym.make(config["env_name"])
        config["obs_shape"] = env.observation_space.shape
        config["act_dim"] = int(env.action_space.n)
        model = ActorCritic(config["obs_shape"][0], config["act_dim"])
        self.agent = Agent(A2C(model, config), config)
        self.total_loss_stat = WindowStat(100)
        self.entropy_stat = WindowStat(100)
        self.sample_time_stat = TimeStat(100)
        self.sample_total_steps = 0
        self.mean_rewards = []
        self.create_actors()

    def create_actors(self):
        parl.connect(self.config["master_address"])
        logger.info("Waiting for {} remote actors to connect.".format(self.config["actor_num"]))
        self.remote_actors = [Actor(self.config, rank) for rank in range(self.config["actor_num"])]

    def step(self):
        latest_params = self.agent.get_weights()
        for remote_actor in self.remote_actors:
            remote_actor.set_weights(latest_params)
        with self.sample_time_stat:
            future_object_ids = [remote_actor.sample() for remote_actor in self.remote_actors]
            sample_datas = [future_object.get() for future_object in future_object_ids]
        train_batch = defaultdict(list)
        for sample_data in sample_datas:
            for key, value in sample_data.items():
                train_batch[key].append(value)
        batch = {key: np.concatenate(value) for key, value in train_batch.items()}
        self.sample_total_steps += len(batch["obs"])
        total_loss, _, _, entropy, _, _ = self.agent.learn(
            batch["obs"], batch["actions"], batch["advantages"], batch["target_values"]
        )
        self.total_loss_stat.add(total_loss)
        self.entropy_stat.add(entropy)

    def log_metrics(self, csv_logger):
        metrics = [future.get() for future in [actor.get_metrics() for actor in self.remote_actors]]
        episode_rewards = [reward for metric in metrics for reward in metric["episode_rewards"]]
        if not episode_rewards:
            return
        self.mean_rewards.append(np.mean(episode_rewards))
        figures = {"mean_episode_rewards": self.mean_rewards[-1], "total_loss": self.total_loss_stat.mean}
        summary.add_scalar("train/mean_reward", figures["mean_episode_rewards"], self.sample_total_steps)
        csv_logger.log_dict({"steps": self.sample_total_steps, **figures})
        logger.info(figures)


if __name__ == "__main__":
    torch.manual_seed(1)
    logger.set_dir("train_log")
    learner = Learner(config)
    csv_logger = CSVLogger("train_log/result.csv")
    updates = 0
    while learner.sample_total_steps < config["max_sample_steps"]:
        learner.step()
        updates += 1
        if updates % config["get_remote_metrics_interval"] == 0:
            learner.log_metrics(csv_logger)
    csv_logger.close()
    print("RESULT", learner.mean_rewards[0], np.mean(learner.mean_rewards[-3:]), learner.sample_time_stat.mean > 0)
