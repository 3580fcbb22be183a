import torch
import torch.nn as nn

import parl_lite as parl


class ActorCritic(parl.Model):
    def __init__(self, obs_dim, act_dim):
        super(ActorCritic, self).__init__()
        self.fc = nn.Linear(obs_dim, 64)
        self.fc_pi = nn.Linear(64, act_dim)
        self.fc_v = nn.Linear(64, 1)

    def policy(self, x):
        return self.fc_pi(torch.tanh(self.fc(x)))

    def value(self, x):
        return self.fc_v(torch.tanh(self.fc(x))).squeeze(-1)

    def policy_and_value(self, x):
        x = torch.tanh(self.fc(x))
        return self.fc_pi(x), self.fc_v(x).squeeze(-1)
