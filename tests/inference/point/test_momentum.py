"""SGD with momentum is a damped mass: the same path, step for step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tunbridge as tb
from tunbridge.core.errors import InputError

MASS, DAMPING, TIME_STEP, STEPS = 1.5, 0.4, 0.1, 200
STEP_SIZE, MOMENTUM = tb.momentum_from_physics(MASS, DAMPING, TIME_STEP)
POTENTIALS = {
    "bowl": (lambda x: 0.5 * jnp.sum(jnp.array([1.0, 8.0]) * x**2), [2.0, 1.0]),
    "pendulum": (lambda x: -jnp.sum(jnp.cos(x)), [3.0]),
}


def heavy(step_size):
    return optax.sgd(step_size, momentum=MOMENTUM)


def moved(potential, x, steps=STEPS):
    """The places of a mass that starts at rest: forces where it is, friction at the velocity it will have."""

    def step(carry, _):
        x, velocity = carry
        force = -jax.grad(potential)(x)
        velocity = (MASS * velocity + TIME_STEP * force) / (MASS + TIME_STEP * DAMPING)
        x = x + TIME_STEP * velocity
        return (x, velocity), x

    return jax.lax.scan(step, (x, jnp.zeros_like(x)), None, length=steps)[1]


def descended(potential, x):
    optimiser = heavy(STEP_SIZE)

    def step(carry, _):
        x, memory = carry
        updates, memory = optimiser.update(jax.grad(potential)(x), memory)
        x = optax.apply_updates(x, updates)
        return (x, memory), x

    return jax.lax.scan(step, (x, optimiser.init(x)), None, length=STEPS)[1]


@pytest.mark.parametrize("name", POTENTIALS)
def test_sgd_with_momentum_moves_like_a_damped_mass(name, x64):
    potential, start = POTENTIALS[name]
    mass, sgd = moved(potential, jnp.array(start)), descended(potential, jnp.array(start))
    assert float(jnp.ptp(mass)) > 1.0
    np.testing.assert_allclose(sgd, mass, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_map_by_sgd_with_momentum_moves_like_a_damped_mass(x64, key):
    x = jax.random.normal(key, (30, 2))
    data = tb.Data(x, jnp.sin(x[:, 0]) + x[:, 1])
    made = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    model, data = made.bind(data)
    init = jax.jit(model.network.init)(key, data.x)
    start, unravel = jax.flatten_util.ravel_pytree(init)
    target = tb.Target(model, data.num)

    def potential(flat):
        params = tb.Params(unravel(flat))
        return -(target.log_likelihood(params, data) + target.log_prior_weights(params)) / data.num

    method = tb.MAP(STEP_SIZE, heavy, tb.schedules.Constant(), tb.Train(50))
    fitted = method.fit(model, data, key=key, init=tb.Params(init), progress=False)
    reached, _ = jax.flatten_util.ravel_pytree(fitted.params.weights)
    mass = moved(potential, start, 50)
    assert float(jnp.max(jnp.abs(mass[-1] - start))) > 0.1
    np.testing.assert_allclose(reached, mass[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.curve["loss"][1:], jax.jit(jax.vmap(potential))(mass[:-1]), atol=1e-12)


def test_a_mass_without_damping_keeps_its_energy_and_one_without_mass_is_gradient_descent():
    assert tb.momentum_from_physics(2.0, 0.0, 0.1) == pytest.approx((0.005, 1.0))
    assert tb.momentum_from_physics(0.0, 2.0, 0.1) == pytest.approx((0.05, 0.0))


@pytest.mark.parametrize("physics", [(1.5, 0.4), (0.0, 3.0), (2.0, 0.0), (1e-3, 1e3)])
def test_both_mappings_are_inverses(physics):
    there = tb.momentum_from_physics(*physics, TIME_STEP)
    back = tb.physics_from_momentum(*there, TIME_STEP)
    assert back == pytest.approx(physics, rel=1e-12, abs=1e-12)
    assert tb.momentum_from_physics(*back, TIME_STEP) == pytest.approx(there, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mass": -1.0}, "mass of at least 0"),
        ({"mass": float("nan")}, "mass= as a real number"),
        ({"damping": -0.1}, "damping of at least 0"),
        ({"time_step": 0.0}, "time step above 0"),
        ({"mass": 0.0, "damping": 0.0}, "mass or damping above 0"),
    ],
)
def test_impossible_physics_is_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        tb.momentum_from_physics(**{"mass": 1.0, "damping": 1.0, "time_step": 0.1, **wrong})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"step_size": 0.0}, "step size above 0"),
        ({"momentum": 1.1}, "momentum from 0 to 1"),
        ({"momentum": -0.1}, "momentum from 0 to 1"),
        ({"time_step": float("inf")}, "time step above 0"),
    ],
)
def test_an_impossible_momentum_is_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        tb.physics_from_momentum(**{"step_size": 0.1, "momentum": 0.9, "time_step": 0.1, **wrong})
