"""PARL's IMPALA example: a thread for each actor fills a queue, the learner empties it, the actors never wait for it."""

import queue
import threading

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

import parl_lite as parl
from parl_lite.algorithms import IMPALA
from parl_lite.utils import get_free_tcp_port, logger, machine_info
from parl_lite.utils.scheduler import PiecewiseScheduler
from parl_lite.utils.window_stat import WindowStat

CONFIG = {"actor_num": 2, "env_num": 4, "sample_batch_steps": 20, "train_batch_size": 320, "updates": 20}


class CartpoleModel(parl.Model):
    def __init__(self):
        super(CartpoleModel, self).__init__()
        self.fc = nn.Linear(4, 64)
        self.policy_fc = nn.Linear(64, 2)
        self.value_fc = nn.Linear(64, 1)

    def policy(self, obs):
        return self.policy_fc(torch.tanh(self.fc(obs)))

    def value(self, obs):
        return self.value_fc(torch.tanh(self.fc(obs))).squeeze(-1)


class CartpoleAgent(parl.Agent):
    def sample(self, obs_np):
        probs, logits = self.alg.sample(torch.from_numpy(obs_np))
        actions = torch.multinomial(probs, 1).squeeze(1)
        return actions.numpy(), logits.detach().numpy()

    def learn(self, obs, actions, behaviour_logits, rewards, dones, lr, entropy_coeff):
        columns = (torch.from_numpy(column) for column in (obs, actions, behaviour_logits, rewards, dones))
        vtrace_loss, kl = self.alg.learn(*columns, lr, entropy_coeff)
        return vtrace_loss.total_loss.item(), kl.item()


def make_agent():
    return CartpoleAgent(
        IMPALA(
            CartpoleModel(),
            sample_batch_steps=CONFIG["sample_batch_steps"],
            gamma=0.99,
            vf_loss_coeff=0.5,
            clip_rho_threshold=1.0,
            clip_pg_rho_threshold=1.0,
        )
    )


@parl.remote_class
class Actor(object):
    def __init__(self, rank):
        torch.manual_seed(rank)
        self.envs = [gym.make("CartPole-v1") for _ in range(CONFIG["env_num"])]
        self.obs = [env.reset(seed=100 * rank + i)[0] for i, env in enumerate(self.envs)]
        self.totals, self.finished = np.zeros(len(self.envs)), []
        self.agent = make_agent()

    def sample(self):
        rows = {name: [[] for _ in self.envs] for name in ("obs", "actions", "behaviour_logits", "rewards", "dones")}
        for _ in range(CONFIG["sample_batch_steps"]):
            actions, logits = self.agent.sample(np.stack(self.obs))
            for i, env in enumerate(self.envs):
                obs, reward, terminated, truncated, _ = env.step(int(actions[i]))
                self.totals[i] += reward
                done = terminated or truncated
                for name, value in zip(rows, (self.obs[i], actions[i], logits[i], np.float32(reward), done)):
                    rows[name][i].append(value)
                if done:
                    self.finished.append(self.totals[i])
                    self.totals[i] = 0
                self.obs[i] = env.reset()[0] if done else obs
        return {name: np.stack([value for column in columns for value in column]) for name, columns in rows.items()}

    def get_metrics(self):
        finished, self.finished = self.finished, []
        return finished

    def set_weights(self, weights):
        self.agent.set_weights(weights)


class Learner(object):
    def __init__(self):
        self.agent = make_agent()
        self.lr_scheduler = PiecewiseScheduler([(0, 0.005), (30, 0.002)])
        self.kl_stat = WindowStat(10)
        self.sample_data_queue = queue.Queue(maxsize=4)
        self.params_lock = threading.Lock()
        self.params = self.agent.get_weights()
        self.stop = threading.Event()
        self.rewards = queue.Queue()

    def run_remote_sample(self, rank):
        remote_actor = Actor(rank)
        while not self.stop.is_set():
            with self.params_lock:
                params = self.params
            remote_actor.set_weights(params)
            self.sample_data_queue.put(remote_actor.sample())
            for reward in remote_actor.get_metrics():
                self.rewards.put(reward)

    def step(self):
        batch, size = [], 0
        while size < CONFIG["train_batch_size"]:
            batch.append(self.sample_data_queue.get(timeout=60))
            size += len(batch[-1]["obs"])
        columns = {name: np.concatenate([data[name] for data in batch]) for name in batch[0]}
        _, kl = self.agent.learn(**columns, lr=self.lr_scheduler.step(), entropy_coeff=-0.01)
        self.kl_stat.add(kl)
        with self.params_lock:
            self.params = self.agent.get_weights()


def main():
    torch.manual_seed(1)
    parl.connect()
    logger.info("GPU: {}, a free port: {}".format(machine_info.is_gpu_available(), get_free_tcp_port()))
    learner = Learner()
    threads = [
        threading.Thread(target=learner.run_remote_sample, args=(rank,), daemon=True) for rank in range(CONFIG["actor_num"])
    ]
    for thread in threads:
        thread.start()
    for _ in range(CONFIG["updates"]):
        learner.step()
    learner.stop.set()
    while any(thread.is_alive() for thread in threads):
        try:
            learner.sample_data_queue.get(timeout=0.1)
        except queue.Empty:
            pass
    returns = [learner.rewards.get() for _ in range(learner.rewards.qsize())]
    print("RESULT", np.mean(returns[:20]), np.mean(returns[-20:]), learner.kl_stat.mean < 1)


if __name__ == "__main__":
    main()
