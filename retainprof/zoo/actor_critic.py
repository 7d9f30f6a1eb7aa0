"""Soft actor-critic with an encoder that both share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ActorCritic"]


class ActorCritic(nn.Module):
    """A squashed Gaussian policy and a critic on one encoder, and the temperature's logarithm.

    Inputs observation (batch, observation), the action taken and standard normal noise (both (batch, action)). Outputs
    ``q`` (batch, 1) of the action taken, ``q_policy`` and ``log_prob`` (batch,) of the policy's own action, and
    ``log_temperature`` ().
    """

    def __init__(self, observation: int, action: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(observation, hidden), nn.ReLU())
        self.policy = nn.Linear(hidden, 2 * action)
        self.critic = nn.Sequential(nn.Linear(hidden + action, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, observation: Tensor, action: Tensor, noise: Tensor) -> dict[str, Tensor]:
        features = self.encoder(observation)
        mean, log_std = self.policy(features).chunk(2, dim=-1)
        before = mean + log_std.exp() * noise
        # log of the density of tanh(before): Gaussian less log(1 - tanh^2), in a form that does not overflow
        squash = 2 * (math.log(2) - before - F.softplus(-2 * before))
        log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash).sum(-1)
        return {
            "q": self.critic(torch.cat((features, action), dim=-1)),
            "q_policy": self.critic(torch.cat((features, before.tanh()), dim=-1)).squeeze(-1),
            "log_prob": log_prob,
            "log_temperature": self.log_temperature,
        }
