import itertools
import os
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import tunbridge as tb
from tunbridge.runtime.fingerprint import fingerprint


def _rate(momentum):
    return lambda step_size: optax.sgd(step_size, momentum=momentum)


def test_fingerprints_tell_functions_and_distributions_apart():
    different = [
        _rate(0.9),
        _rate(0.1),
        optax.adam,
        optax.sgd,
        lambda w, x: x @ w,
        lambda w, x: jnp.tanh(x @ w),
        dist.HalfNormal(1.0),
        dist.HalfNormal(5.0),
        dist.HalfNormal(1.0).expand([2]),
        dist.HalfNormal(5.0).expand([2]),
        dist.HalfNormal(1.0).expand([2]).to_event(1),
        dist.TruncatedNormal(0.0, 1.0, low=0.0),
        dist.TruncatedNormal(0.0, 3.0, low=0.0),
        tb.networks.MLP((5,)),
        tb.networks.MLP((5,), "relu"),
        tb.MAP(),
        tb.MAP(step_size=0.5),
        jax.random.key(0),
        jax.random.key(1),
    ]
    found = [fingerprint(thing) for thing in different]
    assert len(set(found)) == len(found)
    assert found[6] == fingerprint(dist.HalfNormal(1.0))
    assert found[0] == fingerprint(_rate(0.9))


def test_fingerprints_know_where_a_number_ends():
    assert fingerprint(tb.networks.MLP((1, 11))) != fingerprint(tb.networks.MLP((11, 1)))
    assert fingerprint((1, (2, 3))) != fingerprint((1, 2, 3)) != fingerprint(((1, 2), 3))
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(np.zeros(2), np.zeros(0)) != fingerprint(np.zeros(0), np.zeros(2))


def test_fingerprints_see_the_functions_and_constants_that_a_function_names():
    def version(helper, constant):
        module = {"__name__": "someones_script"}
        exec(f"SCALE = {constant}\n{helper}\ndef apply(w, x): return [inner(x) for _ in w] and SCALE", module)
        return fingerprint(module["apply"])

    first = version("def inner(x): return x + 1", 2.0)
    assert first == version("def inner(x): return x + 1", 2.0)
    assert first != version("def inner(x): return x + 2", 2.0)
    assert first != version("def inner(x): return x + 1", 3.0)


def _module(name, source, **names):
    """A module of someone's, as an import makes it."""
    module = types.ModuleType(name)
    vars(module).update(names)
    exec("import dataclasses, functools\nimport equinox as eqx, jax\n" + source, vars(module))
    return module


NETWORK = """
class Base:
    RATE = 2.0
    def scale(self, w): return w * self.RATE

class Net(eqx.Module, Base):
    width: int = 3
    @property
    def half(self): return self.width / 2
    @functools.cached_property
    def twice(self): return self.width * 2
    @staticmethod
    def squash(x): return jax.nn.relu(x)
    @jax.jit
    def apply(self, w, x): return x @ w + 1
"""


def test_fingerprints_see_the_code_of_a_users_class():
    def version(old="", new="", name="someones_package.nets"):
        assert old in NETWORK
        return fingerprint([_module(name, NETWORK.replace(old, new)).Net()])

    first = version()
    assert first == version() == version(name="someones_package.moved")
    changes = {
        "x @ w + 1": "x @ w + 2",
        "/ 2": "/ 3",
        "self.width * 2": "self.width * 3",
        "jax.nn.relu": "jax.nn.gelu",
        "return w * self.RATE": "return w + self.RATE",
        "RATE = 2.0": "RATE = 3.0",
        "width: int = 3": "width: int = 4",
        "eqx.Module, Base": "eqx.Module",
    }
    found = [first, *itertools.starmap(version, changes.items())]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("method", ["__call__", "step"])
def test_fingerprints_see_the_methods_of_an_object(method):
    def version(code, more=""):
        return fingerprint(
            _module("someones_script", f"class Rate:\n def {method}(self, x): return {code}\n{more}").Rate()
        )

    assert version("x + 1") == version("x + 1", "def other(): pass")
    assert version("x + 1") != version("x + 2")


def test_fingerprints_see_what_is_named_through_a_module():
    def version(number, code="pack.helpers.inner(x)", package="pack", alias="helpers"):
        helpers = _module(f"{package}.helpers", f"def deep(x): return x + {number}\ndef inner(x): return deep(x)")
        pack = _module("pack", "", **{alias: helpers})
        helpers.pack = pack  # modules may refer to each other
        return fingerprint(_module("pack.nets", f"def apply(w, x): return {code}", pack=pack, helpers=helpers).apply)

    assert version(1) == version(1) != version(2)
    assert version(1, "helpers.inner(x)") == version(1, "helpers.inner(x)") != version(2, "helpers.inner(x)")
    assert version(1, package="other") != version(2, package="other")
    assert version(1, package="optax") == version(2, package="optax")


def test_fingerprints_see_a_class_that_a_function_makes_objects_of():
    def version(number):
        source = f"class Inner:\n def __call__(self, x): return x + {number}\ndef apply(w, x): return Inner()(x)"
        return fingerprint(_module("someones_script", source).apply)

    assert version(1) == version(1) != version(2)


@pytest.mark.parametrize(
    ("kind", "rules"), [("custom_jvp", ["defjvp(r)"]), ("custom_vjp", ["defvjp(r, b)", "defvjp(b, r)"])]
)
def test_fingerprints_see_derivative_rules(kind, rules):
    def version(number, rule):
        source = f"@jax.{kind}\ndef f(x): return x\ndef b(x, y): return x\ndef r(x, y): return x + {number}\nf.{rule}"
        return fingerprint(_module("someones_script", source).f)

    found = [version(number, rule) for number in (1, 2) for rule in rules]
    assert len(set(found)) == len(found)
    assert found[0] == version(1, rules[0])


def test_fingerprints_see_slots():
    module = _module(
        "someones_script",
        "class Base:\n __slots__ = ('__hidden',)\n def __init__(self, a): self.__hidden = a\n"
        "class Slotted(Base):\n __slots__ = ('rate', 'unset')\n"
        " def __init__(self, a, b): super().__init__(a); self.rate = b\n",
    )
    first = fingerprint(module.Slotted(1.0, 2.0))
    assert first == fingerprint(module.Slotted(1.0, 2.0))
    assert first != fingerprint(module.Slotted(1.0, 3.0))
    assert first != fingerprint(module.Slotted(2.0, 2.0))


def test_fingerprints_see_the_arguments_bound_to_a_function():
    def version(bound):
        source = f"act = functools.partial({bound})\nclass Net:\n def apply(self, x): return act(x)"
        return fingerprint(_module("someones_script", source).Net())

    bounds = ["jax.nn.leaky_relu, negative_slope=0.1", "jax.nn.leaky_relu, negative_slope=0.2", "jax.nn.elu, alpha=0.2"]
    assert len({version(bound) for bound in bounds}) == len(bounds)
    assert version(bounds[0]) == version(bounds[0])


def test_fingerprints_of_long_chains_of_calls_end():
    source = "\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(3000)) + "\ndef f3000(x): return f0(x)"
    assert len(fingerprint(_module("someones_script", source).f0)) == 64


USERS = """
import numpyro.distributions as dist, tunbridge as tb, jax, equinox as eqx
from tunbridge.runtime.fingerprint import fingerprint

class Net(eqx.Module):
    kinds = ("a", "b")
    def init(self, key, x): return {name: 0.0 for name in {"a", "b", "c"}}
    @eqx.filter_jit
    def apply(self, weights, x, *, key=None): return sum(weights[name] for name in self.kinds) * x

prior, likelihood = tb.priors.Normal(dist.LogNormal(0., 1.)), tb.likelihoods.Gaussian(dist.Gamma(.5, 1.))
print(fingerprint(tb.Model(tb.networks.MLP((5,)), prior, likelihood), tb.MAP(), jax.random.key(0), Net()))
"""


@pytest.mark.slow
def test_fingerprints_are_the_same_in_another_process():
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in "123"]
    said = {subprocess.run([sys.executable, "-c", USERS], env=e, capture_output=True, text=True).stdout for e in seeds}
    assert len(said) == 1
    assert len(said.pop().strip()) == 64
