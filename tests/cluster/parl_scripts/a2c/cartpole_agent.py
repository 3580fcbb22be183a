import numpy as np
import torch

import parl_lite as parl
from parl_lite.utils.scheduler import LinearDecayScheduler, PiecewiseScheduler


class Agent(parl.Agent):
    def __init__(self, algorithm, config):
        self.obs_shape = config["obs_shape"]
        super(Agent, self).__init__(algorithm)
        self.lr_scheduler = LinearDecayScheduler(config["start_lr"], config["max_sample_steps"])
        self.entropy_coeff_scheduler = PiecewiseScheduler(config["entropy_coeff_scheduler"])
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def sample(self, obs_np):
        obs = torch.FloatTensor(obs_np).to(self.device)
        probs, values = self.alg.prob_and_value(obs)
        probs = probs.cpu().detach().numpy().astype("float64")
        values = values.cpu().detach().numpy()
        probs = probs / probs.sum(-1, keepdims=True)
        sample_actions = np.array([np.random.choice(len(prob), 1, p=prob)[0] for prob in probs])
        return sample_actions, values

    def predict(self, obs_np):
        obs = torch.FloatTensor(obs_np).to(self.device)
        return self.alg.predict(obs).cpu().detach().numpy()

    def value(self, obs_np):
        obs = torch.FloatTensor(obs_np).to(self.device)
        return self.alg.value(obs).cpu().detach().numpy()

    def learn(self, obs_np, actions_np, advantages_np, target_values_np):
        obs = torch.FloatTensor(obs_np).to(self.device)
        actions = torch.LongTensor(actions_np).to(self.device)
        advantages = torch.FloatTensor(advantages_np).to(self.device)
        target_values = torch.FloatTensor(target_values_np).to(self.device)
        lr = self.lr_scheduler.step(step_num=obs_np.shape[0])
        entropy_coeff = self.entropy_coeff_scheduler.step()
        losses = self.alg.learn(obs, actions, advantages, target_values, lr, entropy_coeff)
        total_loss, pi_loss, vf_loss, entropy = (loss.cpu().detach().numpy() for loss in losses)
        return total_loss, pi_loss, vf_loss, entropy, lr, entropy_coeff
