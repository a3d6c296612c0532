"""Contextual bandits: environments, agents of any method, and a runner."""

from tunbridge.applications.bandits.environments import Environment, labelled, linear, mushrooms, wheel
from tunbridge.applications.bandits.perarm import PerArm
from tunbridge.applications.bandits.policies import UCB, EpsilonGreedy, Greedy, Policy, Thompson
from tunbridge.applications.bandits.runner import Agent, Played, play, regrets

__all__ = [
    "UCB",
    "Agent",
    "Environment",
    "EpsilonGreedy",
    "Greedy",
    "PerArm",
    "Played",
    "Policy",
    "Thompson",
    "labelled",
    "linear",
    "mushrooms",
    "play",
    "regrets",
    "wheel",
]
