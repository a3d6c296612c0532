import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, model, table
from tunbridge.inference import store
from tunbridge.model import spec

HERE = Path(__file__).parent
KILLS = 12
X = np.zeros((2, 3))


def draws(made=None, num=6):
    bound, rows = (made or model()).bind(table())
    like, rng = jax.eval_shape(bound.sample_params, jax.random.key(0), rows.x), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(num, *leaf.shape)), leaf.dtype), like)
    return tb.Draws(bound, jax.random.key(1), params, notes=("Made up.",))


def same(one, two):
    return jax.tree.structure(one) == jax.tree.structure(two) and equal(one, two)


def own(activation=jnp.tanh, width=4):
    """A network of the user's own functions."""

    def init(key, x):
        return {"w": jax.random.normal(key, (x.shape[1], width)), "v": jnp.ones((width, 1))}

    return tb.networks.from_functions(init, lambda w, x: activation(x @ w["w"]) @ w["v"])


def module(width=4):
    return tb.networks.from_equinox(eqx.nn.MLP(3, 1, width, 1, key=jax.random.key(0)))


class Scaled(eqx.Module):
    """A network of the user's own class that takes its outputs from the likelihood."""

    inner: tb.networks.MLP

    def init(self, key, x):
        return self.inner.init(key, x)

    def apply(self, weights, x, *, key=None):
        return 2.0 * self.inner.apply(weights, x)

    def layout(self, weights):
        return self.inner.layout(weights)

    def with_outputs(self, num):
        return Scaled(self.inner.with_outputs(num))


def test_a_mixture_of_mixtures_comes_back(tmp_path):
    made = model(prior=tb.priors.Normal((dist.LogNormal(0.0, 1.0), tb.priors.fan_in(dist.HalfNormal(1.0)))))
    inner = [tb.Mixture(draws(made).model, jax.random.key(i), (draws(made), draws(made, 3))) for i in range(2)]
    posterior = tb.Mixture(draws(made).model, jax.random.key(7), tuple(inner), notes=("a", "b"))
    posterior.save(tmp_path / "new" / "folder")
    assert same(tb.load(tmp_path / "new" / "folder"), posterior)


def test_a_posterior_of_an_unbound_model_comes_back(tmp_path):
    made = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    posterior = tb.Point(made, jax.random.key(0), jax.jit(made.sample_params)(jax.random.key(0), jnp.ones((1, 3))))
    posterior.save(tmp_path)
    assert same(tb.load(tmp_path), posterior)


def test_the_file_says_what_it_is(tmp_path):
    draws().save(tmp_path)
    with np.load(tmp_path / "posterior.npz") as file:
        facts = json.loads(file["facts.json"])
    assert facts["kind"] == "tunbridge posterior"
    assert facts["format"] == 1
    assert set(facts["written"]) == {"tunbridge", "jax", "numpy", "python", "time"}


def test_a_posterior_replaces_another(tmp_path):
    draws().save(tmp_path)
    draws(num=2).save(tmp_path)
    assert tb.load(tmp_path).num == 2
    assert os.listdir(tmp_path) == ["posterior.npz"]


@pytest.mark.parametrize("network", [own(), module(), Scaled(tb.networks.MLP((4,)))], ids=["own", "module", "class"])
def test_a_custom_network_is_loaded_with_its_model(network, tmp_path):
    made = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    posterior = draws(made)
    posterior.save(tmp_path)
    for given in (made, posterior.model):
        back = tb.load(tmp_path, model=given)
        assert same(back, posterior)
    assert equal(back.predict(X).mean, posterior.predict(X).mean)
    with pytest.raises(
        tb.LoadError, match=rf"it lacks your own network \(.*{type(network).__name__}\): pass the model, as in tb.load"
    ):
        tb.load(tmp_path)


def test_a_mixture_of_equinox_networks_comes_back(tmp_path):
    made = tb.Model(module(), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    posterior = tb.Mixture(draws(made).model, jax.random.key(2), (draws(made), draws(made, num=2)))
    posterior.save(tmp_path)
    assert same(tb.load(tmp_path, model=made), posterior)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"network": own(width=5)}, r"v \(4, 1\) stands where the model has v \(5, 1\)"),
        ({"network": module()}, r"v \(4, 1\) stands where the model has"),
        ({"network": tb.networks.MLP((4,))}, r"v \(4, 1\) stands where the model has layers/0/bias \(4,\)"),
        ({"prior": tb.priors.Normal(2.0)}, r"its prior is Normal\(scale=1.0\), but model= has Normal\(scale=2.0\)"),
        ({"likelihood": tb.likelihoods.Gaussian(0.2)}, "its likelihood is Gaussian"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(other, said, tmp_path):
    parts = {"network": own(), "prior": tb.priors.Normal(1.0), "likelihood": tb.likelihoods.Gaussian(0.1)}
    draws(tb.Model(**parts)).save(tmp_path)
    with pytest.raises(tb.LoadError, match=said):
        tb.load(tmp_path, model=tb.Model(**{**parts, **other}))


def test_equinox_modules_of_other_layers_are_refused(tmp_path):
    parts = (tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    draws(tb.Model(module(), *parts)).save(tmp_path)
    deeper = tb.networks.from_equinox(eqx.nn.MLP(3, 1, 4, 2, key=jax.random.key(0)))
    with pytest.raises(tb.LoadError, match="nothing stands where the model has layers/2/weight"):
        tb.load(tmp_path, model=tb.Model(deeper, *parts))
    with pytest.raises(tb.LoadError, match=r"stands where the model has layers/0/weight \(5, 3\)"):
        tb.load(tmp_path, model=tb.Model(module(5), *parts))


def test_a_built_in_network_that_differs_is_refused(tmp_path):
    draws().save(tmp_path)
    assert same(tb.load(tmp_path, model=model()), draws())
    relu = tb.Model(tb.networks.MLP((5,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    with pytest.raises(tb.LoadError, match="its network is MLP"):
        tb.load(tmp_path, model=relu)


def test_wrong_calls_are_refused(tmp_path):
    with pytest.raises(tb.LoadError, match=r"There is no posterior in .*nowhere"):
        tb.load(tmp_path / "nowhere")
    with pytest.raises(tb.InputError, match="model= as a Model"):
        tb.load(tmp_path, model=tb.networks.MLP())
    made = tb.Model(own(), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    params = jax.jit(made.sample_params)(jax.random.key(0), jnp.ones((1, 3)))
    with pytest.raises(tb.InputError, match="a model bound to data"):
        tb.Point(made, jax.random.key(0), params).save(tmp_path)
    with pytest.raises(tb.InputError, match="members of one model"):
        tb.Mixture(draws(made).model, jax.random.key(0), (draws(),)).save(tmp_path)
    assert os.listdir(tmp_path) == []


class Private(tb.Draws):
    """A posterior of the user's own class."""


def test_a_posterior_of_an_unknown_class_is_not_written(tmp_path):
    known = draws()
    with pytest.raises(tb.InputError, match="Private"):
        Private(known.model, known.key, known.params).save(tmp_path)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store, "FORMAT", 2)
        draws().save(tmp_path)
    with pytest.raises(tb.LoadError, match=r"its format 2 is newer than this Tunbridge, which reads 1: upgrade"):
        tb.load(tmp_path)


def _rewrite(folder, change):
    """The saved file with other facts."""
    path = folder / "posterior.npz"
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    facts = json.loads(members["facts.json"])
    change(facts)
    members["facts.json"] = json.dumps(facts).replace('"DEEP"', '{"list": [' * 5000 + "1" + "]}" * 5000).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def _set(*path, to):
    def change(facts):
        for name in path[:-1]:
            facts = facts[name]
        facts[path[-1]] = to

    return change


SYSTEM = {"class": "os:system", "fields": {"command": "touch ran"}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("kind", to="poem"), "not a posterior that Tunbridge saved"),
        (_set("format", to="1"), "not a posterior that Tunbridge saved"),
        (_set("more", to=1), "lacks a part, or has one"),
        (_set("posterior", to=SYSTEM), "'os:system', which is not in the table"),
        (_set("model", "prior", to=SYSTEM), "'os:system', which is not in the table"),
        (_set("model", "prior", to={"class": "MLP", "fields": {}}), "do not fit together"),
        (_set("model", "prior", to={"custom": "os.system"}), r"it lacks your own prior \(os.system\): pass the model"),
        (_set("model", "inputs", to=3), "no save writes"),
        (_set("model", to=[]), "no save writes"),
        (_set("posterior", "class", to="subprocess.Popen"), "not in the table"),
        (_set("posterior", "class", to="MLP"), "it gives MLP a field"),
        (_set("posterior", "class", to="Mixture"), "it gives Mixture a field 'params'"),
        (_set("posterior", "fields", "__class__", to="Point"), "a field '__class__'"),
        (_set("posterior", "fields", "params", to=None), "params= as a Params"),
        (_set("posterior", "fields", "model", to=None), "model= as a Model"),
        (_set("posterior", "fields", "key", to=3), "key= as a key, such as jax"),
        (_set("posterior", to=5), "do not fit together"),
        (_set("posterior", "fields", "params", to={"weights": [["a", 1]]}), "a stands where the model has layers"),
        (_set("posterior", "fields", "params", to={"weights": [1]}), "no save writes"),
        (_set("model", "network", "fields", "hidden", to={"tuple": [1.5]}), "each a whole number"),
        (_set("model", "network", "fields", "hidden", to={"tuple": [7]}), r"layers/0/bias \(5,\) stands where"),
        (_set("model", "network", "fields", "hidden", to={"tuple": [10**15]}), "names a size of 1,000,000"),
        (_set("model", "inputs", "struct", to=[[10**15], "float32"]), "names a size of 1,000,000"),
        (_set("model", "inputs", "struct", to=[[10**5, 10**5], "float32"]), "names a size of 10,000,000,000"),
        (_set("model", "likelihood", to={"class": "Ordinal", "fields": {"classes": 10**8}}), "a size of 100,000,000"),
    ],
)
def test_a_strangers_file_is_refused_and_runs_nothing(change, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws().save(tmp_path)
    _rewrite(tmp_path, change)
    with pytest.raises(tb.LoadError, match=said):
        tb.load(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_deep_nesting_is_refused(tmp_path):
    draws().save(tmp_path)
    _rewrite(tmp_path, _set("posterior", "fields", "notes", to="DEEP"))
    with pytest.raises(tb.LoadError, match="maximum recursion"):
        tb.load(tmp_path)


def test_a_posterior_cut_off_at_many_points_is_refused(tmp_path):
    draws().save(tmp_path)
    path = tmp_path / "posterior.npz"
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), *range(len(whole) - 60, len(whole))]:
        path.write_bytes(whole[:length])
        with pytest.raises(tb.LoadError, match="cannot be loaded"):
            tb.load(tmp_path)


def test_tables_name_only_tunbridge_and_its_posteriors():
    for name, place in store._table().items():
        assert place.startswith("tunbridge.")
        assert place.endswith(f":{name.rpartition('.')[2]}")
    assert set(spec.classes()) - set(store._table()) == {"Model"}


def test_a_full_disk_keeps_the_old_posterior(tmp_path):
    """A real file system of 1 MB, on which the second save has no room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        small = draws()
        small.save(disk)
        large = tb.Draws(small.model, small.key, jax.tree.map(lambda leaf: np.repeat(leaf, 4000, 0), small.params))
        with pytest.raises(OSError, match="No space left"):
            large.save(disk)
        assert os.listdir(disk) == ["posterior.npz"]
        assert same(tb.load(disk), small)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_process_killed_while_saving_leaves_a_whole_posterior(tmp_path):
    """kill -9 at a random moment, after some saves: what is there is one of the two that it saves in turn."""
    rng, folder = random.Random(12), tmp_path / "saved"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    command = [sys.executable, str(HERE / "saving.py"), str(folder)]
    for _ in range(KILLS):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        with process.stdout:
            said = [process.stdout.readline() for _ in range(rng.randint(3, 40))]
            time.sleep(rng.uniform(0.0, 0.02))
            process.send_signal(signal.SIGKILL)
        assert all(said)
        assert process.wait(60) == -signal.SIGKILL
        found = tb.load(folder)
        assert found.num in (2, 2000)
        assert all((leaf == found.num).all() for leaf in jax.tree.leaves(found.params))


def test_a_posterior_of_64_bits_comes_back_as_such_or_not_at_all(tmp_path):
    with jax.enable_x64(True):
        posterior = draws()
        posterior.save(tmp_path)
        back = tb.load(tmp_path)
    assert same(back, posterior)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(back.params)} == {"float64"}
    with pytest.raises(tb.LoadError, match=r"it holds float64 numbers: call jax.config.update"):
        tb.load(tmp_path)


def test_weights_that_are_nan_are_refused(tmp_path):
    spoilt = draws()
    leaves, structure = jax.tree.flatten(spoilt.params)
    leaves[0] = leaves[0].at[0].set(jnp.nan)
    tb.Draws(spoilt.model, spoilt.key, jax.tree.unflatten(structure, leaves)).save(tmp_path)
    with pytest.raises(tb.LoadError, match=r"posterior\.npz cannot be loaded: its params/.* holds NaN"):
        tb.load(tmp_path)
