"""How a posterior of the rewards chooses an arm."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module, Positive
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model


class Policy(Module):
    """A rule that scores the arms."""

    @abc.abstractmethod
    def scores(self, key: Key, posterior: Posterior, x: np.ndarray) -> np.ndarray:
        """Return a score for each arm, (steps, arms); the arm of the highest is tried.

        Parameters
        ----------
        key
            The key.
        posterior
            What is known of the rewards.
        x
            Inputs of the reward model, one row per arm, (steps, arms, features).
        """


class Thompson(Policy):
    """Thompson sampling: the best arm of one network drawn from the posterior, a new one at every step.

    Arms are tried as often as they are probably best :cite:p:`thompson1933likelihood`.
    """

    def scores(self, key: Key, posterior: Posterior, x: np.ndarray) -> np.ndarray:
        """Return the outputs of a network per step, of a linearised one where that is how the posterior predicts."""
        if not posterior.linear:
            return np.asarray(_outputs(posterior.model, posterior.sample(key, len(x)), x))
        key_draws, key_which = jax.random.split(key)
        predictive: Any = posterior.predict(x.reshape(-1, x.shape[-1]), key=key_draws)
        functions = np.asarray(predictive.functions)[..., 0].reshape(-1, *x.shape[:2])
        which = np.asarray(jax.random.randint(key_which, (len(x),), 0, len(functions)))
        return functions[which, np.arange(len(x))]


class Greedy(Policy):
    """The arm of the largest expected reward: no exploration."""

    def scores(self, key: Key, posterior: Posterior, x: np.ndarray) -> np.ndarray:
        """Return expected rewards."""
        return _moments(posterior, x)[0]


class EpsilonGreedy(Policy):
    """The arm of the largest expected reward, but an arm at random at a share of the steps.

    Parameters
    ----------
    epsilon
        The share, from 0 to 1.
    """

    epsilon: float = eqx.field(default=0.05)

    def __check_init__(self):
        if not 0.0 <= self.epsilon <= 1.0:
            raise InputError("epsilon from 0 to 1", f"{self.epsilon}", "Write 0.05.")

    def scores(self, key: Key, posterior: Posterior, x: np.ndarray) -> np.ndarray:
        """Return expected rewards, or random numbers."""
        key_when, key_which = jax.random.split(key)
        chance = np.asarray(jax.random.uniform(key_which, x.shape[:2]))
        away = np.asarray(jax.random.uniform(key_when, (len(x), 1))) < self.epsilon
        return np.where(away, chance, _moments(posterior, x)[0])


class UCB(Policy):
    """Upper confidence bound: expected reward plus a multiple of its epistemic standard deviation.

    Parameters
    ----------
    width
        The multiple.
    """

    width: Positive = 1.0

    def scores(self, key: Key, posterior: Posterior, x: np.ndarray) -> np.ndarray:
        """Return upper bounds."""
        mean, deviation = _moments(posterior, x)
        return mean + self.width * deviation


@jax.jit
def _outputs(model: Model, params: Params, x: Array) -> Array:
    """Outputs (steps, arms) of one network per step."""
    return jax.vmap(lambda p, rows: model.outputs(p, rows)[:, 0])(params, jnp.asarray(x))


def _moments(posterior: Posterior, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and epistemic standard deviations of the rewards, (steps, arms)."""
    predictive: Any = posterior.predict(x.reshape(-1, x.shape[-1]))
    mean, variance = np.asarray(predictive.mean), np.asarray(predictive.epistemic)
    return mean[:, 0].reshape(x.shape[:2]), np.sqrt(variance[:, 0]).reshape(x.shape[:2])
