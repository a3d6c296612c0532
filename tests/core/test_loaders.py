"""Pairs and loaders as data: what a user has at hand becomes Data or a stream, or a sentence says what to write."""

import functools

import jax
import numpy as np
import pytest

import tunbridge as tb
from toys import LeastSquares, equal, model, quick
from tunbridge.applications import compression
from tunbridge.bench import make_reference
from tunbridge.bench.truth import reference
from tunbridge.core.data import Data, Stream
from tunbridge.core.loaders import as_data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3)).astype("float32")
Y = X[:, :1] - 0.5 * X[:, 1:2]


class Loader:
    """Looks like a DataLoader over rows in memory: batches anew at each turn, the last one short."""

    def __init__(self, x=X, y=Y, size=8, **facts):
        self.dataset, self.size, self.turns = list(zip(x, y, strict=True)), size, 0
        vars(self).update(facts)

    def __len__(self):
        return -(-len(self.dataset) // self.size)

    def __iter__(self):
        self.turns += 1
        for start in range(0, len(self.dataset), self.size):
            x, y = zip(*self.dataset[start : start + self.size], strict=True)
            yield [np.stack(x), np.stack(y)]


class Tensor:
    """A tensor of PyTorch that has a gradient: NumPy takes it only once it is detached."""

    __module__ = "torch"

    def __init__(self, values):
        self._values, self.dtype = np.asarray(values), "torch.float32"

    def __array__(self, *_, **__):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self._values


def test_a_pair_is_rows_in_memory():
    assert equal(as_data((X, Y)), tb.Data(X, Y))
    assert equal(as_data((Tensor(X), Tensor(Y))), tb.Data(X, Y))
    data = tb.Data(X, Y)
    assert as_data(data) is data


def test_a_loader_is_a_stream_that_can_be_read_again():
    stream = as_data(Loader())
    assert isinstance(stream, Stream)
    assert stream.num == 20
    assert stream.repeatable
    assert not stream.restartable
    for epoch in (0, 1):
        np.testing.assert_array_equal(np.concatenate([x for x, _ in stream.make(epoch)]), X)


def test_a_sampler_says_how_many_rows_an_epoch_has():
    assert as_data(Loader(sampler=range(12))).num == 12


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([X, Y], r"got list\. Write tb\.Data\(x, y\), or tb\.Data\.from_batches\(batches, num=\.\.\.\)"),
        (X, r"got ndarray\. Write tb\.Data\(x, y\)"),
        (None, r"got NoneType\. Write tb\.Data\(x, y\)"),
        ((X, Y, np.ones(20)), r"a pair \(x, y\); got a tuple of 3\. Write \(x, y\), or tb\.Data\(x, y, weight\)"),
        (iter(Loader()), r"got generator\. Write tb\.Data\(x, y\), or tb\.Data\.from_batches\(batches, num=\.\.\.\)"),
        (Loader(persistent_workers=True), r"persistent_workers=True\. Write persistent_workers=False"),
        (Loader(dataset=None), r"got Loader\. .*tb\.Data\.from_batches\(batches, num=\.\.\.\)"),
    ],
)
def test_other_things_are_refused_with_what_to_write(given, sentence, key):
    with pytest.raises(tb.InputError, match=sentence):
        tb.MAP(train=tb.Train(5)).fit(model(), given, key=key)


def test_batches_that_are_no_pairs_are_refused_with_what_to_write(key):
    class Named(Loader):
        def __iter__(self):
            return iter([{"image": X, "label": Y}])

    with pytest.raises(
        tb.InputError, match=r"batches as \(x, y\) or \(x, y, weight\); got dict\. Write .*from_batches\(lambda epoch"
    ):
        tb.MAP(train=tb.Train(5)).fit(model(), Named(), key=key)


METHODS = {
    "map": tb.MAP(train=tb.Train(20)),
    "ensemble": tb.Ensemble(tb.MAP(train=tb.Train(20)), 2),
    "laplace": tb.Laplace(point=tb.MAP(train=tb.Train(20))),
    "neurallinear": tb.NeuralLinear(tb.MAP(train=tb.Train(20))),
    "sghmc": tb.SGHMC(run=tb.Run(chains=2, warmup=20, draws=10, thin=1)),
}


@pytest.mark.parametrize("name", quick(METHODS, ("map",)))
def test_methods_take_pairs_and_loaders(name, key):
    rows, pair = (METHODS[name].fit(model(), data, key=key, progress=False) for data in (tb.Data(X, Y), (X, Y)))
    assert equal(pair.predict(X).mean, rows.predict(X).mean)
    loader = Loader()
    posterior = METHODS[name].fit(model(), loader, key=key, progress=False)
    assert np.isfinite(posterior.predict(X).mean).all()
    assert loader.turns > 1


SHORT = tb.HMC(run=tb.Run(chains=2, warmup=20, draws=50))


@functools.cache
def learnt():
    return LeastSquares().fit(model(()), tb.Data(X, Y), key=jax.random.key(0))


TABLES = {
    "split": lambda data, key: tb.datasets.split(data, key),
    "scaling": lambda data, key: tb.datasets.Scaling.of(X, Y).apply(data),
    "bind": lambda data, key: model().bind(data),
    "prior_predictive": lambda data, key: tb.bench.prior_predictive(model(), data, key=key, num=3).rows,
    "check": lambda data, key: learnt().check(data, key=key).rows,
    "to_arviz": lambda data, key: learnt().to_arviz(data).observed_data.y,
    "pruning_curve": lambda data, key: compression.pruning_curve(learnt(), data, (0.0,), by="magnitude").rows,
    "make_reference": lambda data, key: make_reference(model(), data, X, SHORT, key).predictions,
}


@pytest.mark.parametrize("name", quick(TABLES, ("split", "scaling", "bind", "pruning_curve")))
def test_functions_of_data_take_pairs(name, key, monkeypatch):
    monkeypatch.setattr(reference, "_holds", lambda *_: True)
    assert equal(TABLES[name]((Tensor(X), Tensor(Y)), key), TABLES[name](tb.Data(X, Y), key))


@pytest.mark.parametrize("name", [name for name in TABLES if name != "make_reference"])
def test_functions_of_data_refuse_arrays_and_streams(name, key):
    for given in (X, as_data(Loader())):
        with pytest.raises(tb.InputError, match=r"as tb\.Data or a pair \(x, y\); got (ndarray|Stream)"):
            TABLES[name](given, key)


@pytest.mark.slow
def test_laplace_sees_each_row_of_a_loader_once(key):
    """The last batch is short: steps fill it up, the curvature does not."""
    weights = tb.MAP(train=tb.Train(20)).fit(model(), (X, Y), key=key, progress=False).params
    method = tb.Laplace(point=None, tune=None)
    one, two = (method.fit(model(), data, key=key, init=weights.weights) for data in ((X, Y), Loader()))
    np.testing.assert_allclose(two.predict(X).epistemic, one.predict(X).epistemic, rtol=1e-3)


def test_a_loader_refuses_a_checkpoint(key, tmp_path):
    with pytest.raises(tb.InputError, match="can be restarted"):
        METHODS["map"].fit(model(), Loader(), key=key, checkpoint=tmp_path)


@pytest.mark.slow
def test_compare_takes_pairs_of_anything_and_refuses_loaders():
    found = tb.compare(model(), (Tensor(X), Tensor(Y)), (X, Y), ["map"], baselines=False, max_seconds=1, progress=False)
    assert len(found.rows) == 1
    with pytest.raises(tb.InputError, match=r"rows in memory.*got Loader\. Write tb\.Data\(x, y\)"):
        tb.compare(model(), Loader(), (X, Y), ["map"])


def test_a_dataloader_of_torch_is_a_stream(key):
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
    assert as_data(loader).num == 20
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(300)), 2).fit(model(), loader, key=key, progress=False)
    memory = tb.Ensemble(tb.MAP(train=tb.Train(300)), 2).fit(model(), (X, Y), key=key, progress=False)
    np.testing.assert_allclose(posterior.predict(X).mean, memory.predict(X).mean, atol=0.2)
    tensors = (torch.tensor(X, requires_grad=True), torch.tensor(Y, dtype=torch.bfloat16))
    assert as_data(tensors).num == 20
    with pytest.raises(tb.InputError, match=r"got TensorDataset\. .*DataLoader\(dataset, batch_size=128\)"):
        tb.MAP().fit(model(), rows, key=key)


@pytest.mark.slow
def test_doors_take_the_same_data(key):
    equinox = pytest.importorskip("equinox")
    module = equinox.nn.MLP(3, 1, 4, 1, key=key)
    quick, noise = tb.MAP(train=tb.Train(5)), tb.likelihoods.Gaussian(0.5)
    one, two = (
        tb.to_bayesian(module, data, quick, key=key, likelihood=noise, progress=False)
        for data in ((X, Y), tb.Data(X, Y))
    )
    assert equal(one.predict(X).mean, two.predict(X).mean)
    streamed = tb.to_bayesian(module, Loader(), quick, key=key, likelihood=noise, progress=False)
    assert isinstance(as_data((X, Y)), Data)
    assert np.isfinite(streamed.predict(X).mean).all()
