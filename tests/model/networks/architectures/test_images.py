"""Networks of images and sequences: each is what its equations say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core import tree
from tunbridge.model.networks.architectures import convolution
from tunbridge.model.networks.architectures.recurrent import lstm

RESNET = tb.networks.ResNet20(width=2, blocks=1, outputs=3)
IMAGES = jax.random.normal(jax.random.key(1), (4, 8, 8, 2))


@pytest.fixture(scope="module")
def resnet():
    """Weights far from where they start, and the compiled network."""
    weights = jax.jit(RESNET.init)(jax.random.key(2), IMAGES)
    rng = np.random.default_rng(3)
    moved = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype), weights)
    return moved, jax.jit(RESNET.apply)


def _num(network, x):
    return tree.size(jax.eval_shape(network.init, jax.random.key(0), x))


def test_resnet20_has_the_weights_that_arithmetic_gives():
    def conv(side, inputs, outputs):
        return side * side * inputs * outputs + outputs + 3 * outputs  # kernel, bias, normalisation

    stages = [6 * conv(3, 16, 16)]
    stages += [conv(3, c // 2, c) + 5 * conv(3, c, c) + conv(1, c // 2, c) for c in (32, 64)]
    whole = conv(3, 3, 16) + sum(stages) + 64 * 10 + 10
    assert _num(tb.networks.ResNet20(outputs=10), jnp.zeros((1, 32, 32, 3))) == whole == 274_042


def test_lenet5_has_the_weights_of_the_paper_with_full_connections():
    whole = 26 * 6 + (6 * 25 + 1) * 16 + 401 * 120 + 121 * 84 + 85 * 10
    assert _num(tb.networks.LeNet5(outputs=10), jnp.zeros((1, 28, 28, 1))) == whole == 61_706


@pytest.mark.parametrize(("depth", "convolutions"), [(11, 8), (13, 10), (16, 13), (19, 16)])
def test_vgg_has_the_layers_of_its_depth(depth, convolutions):
    network = tb.networks.VGG(depth, outputs=10)
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    kernels = [leaf.shape for leaf in jax.tree.leaves(shapes) if len(leaf.shape) == 4]
    assert len(kernels) == convolutions == depth - 3
    assert kernels[-1] == (3, 3, 512, 512)
    assert shapes["linear"]["weight"].shape == (512, 10)


def test_cnnlstm_has_the_weights_that_arithmetic_gives():
    whole = 20_000 * 128 + (5 * 128 + 1) * 64 + (64 + 128 + 1) * 4 * 128 + 129 * 2
    assert _num(tb.networks.CNNLSTM(outputs=2), jnp.zeros((1, 100), int)) == whole


def test_kernels_start_truncated_with_the_variance_of_he(key):
    network = tb.networks.ResNet20(width=32, blocks=1, outputs=3)
    weights = jax.jit(network.init)(key, IMAGES)
    kernel = weights["stages"][2][0]["conv2"]["weight"]
    assert float(kernel.std() * np.sqrt(9 * 128 / 2)) == pytest.approx(1.0, rel=0.01)
    assert float(abs(kernel).max() * np.sqrt(9 * 128 / 2)) == pytest.approx(2.0 / 0.8796, rel=1e-3)
    np.testing.assert_array_equal(weights["norm"]["gamma"], 1.0)
    for name in ("beta", "tau"):
        np.testing.assert_array_equal(weights["norm"][name], 0.0)
    np.testing.assert_array_equal(weights["conv"]["bias"], 0.0)


def test_filter_response_normalisation_is_the_equation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 5, 2)).astype(np.float32)
    weights = {name: rng.normal(size=2).astype(np.float32) for name in ("gamma", "beta", "tau")}
    wanted = np.empty_like(x)
    for point in range(3):
        for channel in range(2):
            one = x[point, :, :, channel]
            root = np.sqrt((one**2).mean() + 1e-6)
            gamma, beta, tau = (weights[name][channel] for name in ("gamma", "beta", "tau"))
            wanted[point, :, :, channel] = np.maximum(gamma * one / root + beta, tau)
    np.testing.assert_allclose(convolution.frn(jax.tree.map(jnp.asarray, weights), jnp.asarray(x)), wanted, rtol=1e-5)


def test_the_mean_of_squares_is_summed_in_single_precision():
    x = jnp.ones((1, 64, 64, 1), jnp.bfloat16)  # in bfloat16 a sum of ones stops at 256
    weights = {"gamma": jnp.ones(1), "beta": jnp.zeros(1), "tau": jnp.zeros(1)}
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), weights)
    np.testing.assert_array_equal(convolution.frn(low, x), 1.0)


def _residual_network(weights, x):
    """The network in NumPy, with convolutions as sums over the window."""

    def conv(layer, x, stride=1):
        kernel, bias = np.asarray(layer["weight"]), np.asarray(layer["bias"])
        side, out = kernel.shape[0], -(-x.shape[1] // stride)
        short = max((out - 1) * stride + side - x.shape[1], 0)
        padded = np.pad(x, ((0, 0), *[(short // 2, short - short // 2)] * 2, (0, 0)))
        end = (out - 1) * stride + 1
        shifts = [(i, j) for i in range(side) for j in range(side)]
        return bias + sum(padded[:, i : i + end : stride, j : j + end : stride] @ kernel[i, j] for i, j in shifts)

    def normalised(layer, norm, x, stride=1):
        z = conv(layer, x, stride)
        z = z / np.sqrt((z**2).mean((1, 2), keepdims=True) + 1e-6)
        return np.maximum(np.asarray(norm["gamma"]) * z + np.asarray(norm["beta"]), np.asarray(norm["tau"]))

    def swish(z):
        return z / (1 + np.exp(-z))

    z = swish(normalised(weights["conv"], weights["norm"], x))
    for number, (block,) in enumerate(weights["stages"]):
        stride = 2 if number else 1
        y = swish(normalised(block["conv1"], block["norm1"], z, stride))
        y = normalised(block["conv2"], block["norm2"], y)
        z = swish(y + (normalised(*block["shortcut"].values(), z, stride) if number else z))
    return z.mean((1, 2)) @ np.asarray(weights["linear"]["weight"]) + np.asarray(weights["linear"]["bias"])


def test_resnet_is_the_network_of_its_definition(resnet):
    weights, apply = resnet
    wanted = _residual_network(weights, np.asarray(IMAGES, np.float64))
    np.testing.assert_allclose(apply(weights, IMAGES), wanted, rtol=1e-3, atol=1e-4)


def test_resnet_does_not_depend_on_the_norms_of_its_filters(resnet):
    weights, apply = resnet
    pairs = RESNET.normalised(weights)
    assert ("stages/0/0/conv1/weight", "stages/0/0/conv1/bias") in pairs
    assert ("stages/1/0/shortcut/conv/weight", "stages/1/0/shortcut/conv/bias") in pairs
    assert len(pairs) == 1 + 3 * 2 + 2
    named, rng = dict(tree.flatten_with_paths(weights)), np.random.default_rng(4)
    scaled = dict(named)
    for pair in pairs:
        factors = jnp.asarray(rng.uniform(1.0, 5.0, named[pair[1]].shape), jnp.float32)
        for path in pair:
            scaled[path] = named[path] * factors.reshape(*[1] * (named[path].ndim - 1), -1)
    moved = jax.tree.unflatten(jax.tree.structure(weights), [scaled[path] for path in tree.paths(weights)])
    np.testing.assert_allclose(apply(moved, IMAGES), apply(weights, IMAGES), rtol=1e-3, atol=1e-4)
    linear = {**weights, "linear": jax.tree.map(lambda leaf: 2.0 * leaf, weights["linear"])}
    assert not np.allclose(apply(linear, IMAGES), apply(weights, IMAGES), rtol=0.1)


@pytest.mark.slow
def test_low_precision_computes_the_same_and_keeps_gradients_single(resnet):
    weights, apply = resnet
    cast = tb.networks.Cast(RESNET)
    whole = apply(weights, IMAGES)
    low = jax.jit(cast.apply)(weights, IMAGES)
    assert low.dtype == jnp.float32
    assert not np.array_equal(low, whole)
    assert float(abs(low - whole).max() / abs(whole).max()) < 20 * 2.0**-8  # some 20 roundings one after another
    gradient = jax.eval_shape(jax.grad(lambda w: cast.apply(w, IMAGES).sum()), weights)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


def test_gradients_of_low_precision_are_summed_in_single_precision():
    def total(weights, x):
        return convolution.frn(weights["norm"], convolution.convolve(weights["conv"], x)).astype(jnp.float32).sum()

    conv = {"weight": jnp.ones((1, 1, 1, 1)), "bias": jnp.zeros(1)}
    weights = {"conv": conv, "norm": {"gamma": jnp.ones(1), "beta": jnp.zeros(1), "tau": -jnp.ones(1)}}
    low, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (weights, jnp.ones((4, 32, 32, 1))))
    found = jax.jit(jax.grad(total))(low, x)["norm"]
    assert (float(found["beta"][0]), float(found["gamma"][0])) == (4096.0, 4096.0)
    bias = jax.jit(jax.grad(lambda w: convolution.convolve(w, x).astype(jnp.float32).sum()))(low["conv"])["bias"]
    assert float(bias[0]) == 4096.0


@pytest.mark.slow  # on 8 x 8 pixels the last stage divides by norms of four: there no precision is enough
def test_gradients_of_low_precision_point_where_those_of_single_precision_do(resnet):
    weights, _ = resnet
    x = jax.random.normal(jax.random.key(5), (64, 16, 16, 2))

    def gradient(network):
        return tree.ravel(jax.jit(jax.grad(lambda w: jnp.sum(jnp.square(network.apply(w, x)))))(weights))

    a, b = gradient(RESNET), gradient(tb.networks.Cast(RESNET))
    assert float(a @ b / jnp.sqrt((a @ a) * (b @ b))) > 0.995


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "structure"),
    [*((name, "Kronecker") for name in ("LeNet5", "ResNet20", "VGG", "CNNLSTM")), ("Cast", "Diagonal")],
)
def test_laplace_reads_every_network(name, structure, key):
    tokens = jax.random.randint(key, (8, 10), 0, 9)
    network = {
        "LeNet5": tb.networks.LeNet5(),
        "ResNet20": tb.networks.ResNet20(2, 1),
        "VGG": tb.networks.VGG(11, 1 / 32),
        "CNNLSTM": tb.networks.CNNLSTM(9, 3, 4, 2, 2, 3),
        "Cast": tb.networks.Cast(tb.networks.CNNLSTM(9, 3, 4, 2, 2, 3)),
    }[name]
    x = tokens if name in ("CNNLSTM", "Cast") else jnp.concatenate([IMAGES, -IMAGES])
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(3))
    method = tb.Laplace(structure=getattr(tb.structures, structure)(), point=tb.MAP(train=tb.Train(5)), tune=None)
    posterior = method.fit(model, tb.Data(x, np.arange(8) % 3), key=key, progress=False)
    assert np.isfinite(posterior.predict(x).probs).all()


def test_cast_takes_tokens_as_they_are_and_double_weights_back(key, x64):
    network = tb.networks.Cast(tb.networks.CNNLSTM(300, 2, 2, 2, 2, 2, outputs=2), jnp.float32)
    assert network.dtype == "float32"
    x = jnp.asarray([[257, 258, 299, 0]])
    weights = jax.jit(network.init)(key, x)
    assert {leaf.dtype for leaf in jax.tree.leaves(weights)} == {jnp.dtype("float64")}
    low, whole = (jax.jit(each.apply)(weights, x) for each in (network, network.network))
    assert low.dtype == jnp.float64
    np.testing.assert_allclose(low, whole, rtol=1e-5)
    assert not np.array_equal(low, whole)


def test_lstm_is_a_loop_over_its_equations():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 3)).astype(np.float32)
    w, u, b = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 16), (4, 16), (16,)))
    h = c = np.zeros((2, 4))

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    for t in range(5):
        i, g, f, o = np.split(x[:, t] @ w + h @ u + b, 4, axis=1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    weights = {"inputs": {"weight": w, "bias": b}, "state": {"weight": u}}
    np.testing.assert_allclose(lstm(jax.tree.map(jnp.asarray, weights), jnp.asarray(x)), h, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_cnnlstm_reads_windows_pools_and_takes_the_last_state(key):
    network = tb.networks.CNNLSTM(7, 3, 4, window=2, pool=2, cells=5, outputs=2)
    x = np.array([[0, 3, 6, 1, 1], [2, 2, 5, 4, 0]])
    weights, apply = jax.jit(network.init)(key, jnp.asarray(x)), jax.jit(network.apply)
    vectors = np.asarray(weights["embedding"]["weight"])[x]
    kernel = np.asarray(weights["conv"]["weight"])
    z = np.maximum(vectors[:, :-1] @ kernel[0] + vectors[:, 1:] @ kernel[1], 0.0)
    state = np.asarray(lstm(weights["lstm"], jnp.asarray(z.reshape(2, 2, 2, 4).max(2))))
    wanted = state @ np.asarray(weights["linear"]["weight"])
    np.testing.assert_allclose(apply(weights, jnp.asarray(x)), wanted, rtol=1e-4, atol=1e-6)
    assert np.isnan(apply(weights, jnp.full((2, 5), 7))).all()


def test_lenet5_pads_28_pixels_to_32_and_pools_by_means(key):
    network, x = tb.networks.LeNet5("relu", outputs=3), jax.random.normal(key, (2, 28, 28, 1))
    weights, apply = jax.jit(network.init)(key, x), jax.jit(network.apply)
    padded = jnp.asarray(np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0))))
    np.testing.assert_allclose(apply(weights, padded), apply(weights, x), rtol=1e-5)
    ones = jnp.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(convolution.mean_pool(ones, 2)[0, :, :, 0], [[2.5, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(convolution.max_pool(ones, 2)[0, :, :, 0], [[5, 7], [13, 15]])


def test_layouts_tell_windows_inputs_and_outputs(key):
    x = jnp.zeros((1, 10), int)
    network = tb.networks.CNNLSTM(9, 3, 4, 5, 2, 6, outputs=2)
    fans = _fans(network, jax.eval_shape(network.init, key, x))
    assert fans["embedding/weight"] == ("embedding", 1)
    assert fans["conv/weight"] == ("weight", 5 * 3)
    assert fans["lstm/inputs/weight"] == ("weight", 4)
    assert fans["lstm/state/weight"] == ("weight", 6)
    assert fans["lstm/inputs/bias"] == ("bias", 1)
    fans = _fans(RESNET, jax.eval_shape(RESNET.init, key, IMAGES))
    assert fans["conv/weight"] == ("weight", 9 * 2)
    assert fans["stages/1/0/shortcut/conv/weight"] == ("weight", 2)
    assert fans["stages/2/0/norm1/tau"] == ("norm", 1)
    assert fans["linear/weight"] == ("weight", 8)


def _fans(network, shapes):
    leaves = zip(tree.paths(shapes), jax.tree.leaves(network.layout(shapes)), jax.tree.leaves(shapes), strict=True)
    return {path: (leaf.role, leaf.fan_in(shape.shape)) for path, leaf, shape in leaves}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.networks.ResNet20(width=0), "a whole number above 0 as width"),
        (lambda: tb.networks.ResNet20(blocks=1.5), "blocks= as a whole number"),
        (lambda: tb.networks.LeNet5(outputs=0), "a whole number above 0 as outputs"),
        (lambda: tb.networks.LeNet5("tahn"), "an activation of tanh"),
        (lambda: tb.networks.VGG(20), "a depth of 11, 13, 16, 19"),
        (lambda: tb.networks.VGG(width=0.01), "a width that leaves a channel"),
        (lambda: tb.networks.CNNLSTM(vocabulary=0), "a whole number above 0 as vocabulary"),
        (lambda: tb.networks.Cast(RESNET, "int8"), "a floating-point dtype"),
        (lambda: tb.networks.Cast(RESNET, jax.random.key(0)), "a dtype such as"),
        (lambda: tb.networks.Cast(RESNET, "half-ish"), "a dtype such as"),
        (lambda: tb.networks.Cast(tb.networks.Offset(tb.networks.MLP())), r"Offset\(Cast\(network\)\)"),
        (lambda: tb.networks.VGG().init(jax.random.key(0), IMAGES), "a network that knows its outputs"),
        (lambda: RESNET.init(jax.random.key(0), IMAGES[0]), r"\(points, height, width, channels\) for ResNet20"),
        (lambda: tb.networks.LeNet5(outputs=1).init(jax.random.key(0), jnp.zeros((1, 40, 28, 1))), "at most 32 x 32"),
        (lambda: tb.networks.CNNLSTM(outputs=1).init(jax.random.key(0), jnp.zeros((1, 9))), "x of tokens"),
        (lambda: tb.networks.CNNLSTM(outputs=1).init(jax.random.key(0), jnp.zeros((1, 7), int)), "at least 8 tokens"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()
