import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import model
from tunbridge.runtime.batches import HostCursor, Minibatches


def _rows(num):
    return tb.Data(np.arange(num, dtype=float)[:, None], np.zeros(num))


def _epoch(source, key, epoch):
    per = -(-source.data.num // source.size)
    cursor, rows = source.start(key, jnp.int32(epoch * per)), []
    for t in range(epoch * per, (epoch + 1) * per):
        cursor = source.follow(key, cursor, jnp.int32(t))
        batch = source.batch(cursor, jnp.int32(t))
        rows.append(np.asarray(batch.x[:, 0], int))
    return rows


def test_an_epoch_is_a_permutation_and_the_next_another(key):
    source = Minibatches(_rows(12), 4)
    first, second = (np.concatenate(_epoch(source, key, e)) for e in (0, 1))
    assert sorted(first) == sorted(second) == list(range(12))
    assert not np.array_equal(first, second)


def test_the_last_batch_wraps_to_the_start_of_its_epoch(key):
    batches = _epoch(Minibatches(_rows(10), 4), key, 0)
    rows = np.concatenate(batches)
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert sorted(rows[:10]) == list(range(10))
    np.testing.assert_array_equal(rows[10:], rows[:2])


def test_a_batch_is_a_pure_function_of_key_and_step(key):
    source = Minibatches(_rows(10), 4)
    walked = [row for epoch in range(3) for row in _epoch(source, key, epoch)]
    for t in (0, 2, 4, 8):  # entered in the middle of an epoch
        batch = source.batch(source.start(key, jnp.int32(t)), jnp.int32(t))
        np.testing.assert_array_equal(batch.x[:, 0], walked[t])
    other = source.batch(source.start(jax.random.key(1), jnp.int32(0)), jnp.int32(0))
    assert not np.array_equal(other.x[:, 0], walked[0])


@pytest.mark.slow
def test_strides_of_several_steps_see_the_same_rows(key):
    walked = [row for epoch in range(4) for row in _epoch(Minibatches(_rows(10), 2), key, epoch)]
    source = Minibatches(_rows(10), 2, stride=4)  # epochs of 5 steps
    cursor, seen = source.start(key, jnp.int32(0)), []
    for begun in range(0, 20, 4):
        cursor = source.follow(key, cursor, jnp.int32(begun))
        seen += [source.batch(cursor, jnp.int32(begun + i)).x[:, 0] for i in range(4)]
    np.testing.assert_array_equal(seen, walked)


@pytest.mark.slow
def test_every_row_comes_equally_often_in_every_place(key):
    """Chi-square over 10 places of one row in 2,000 epochs, level 1e-3, fixed key."""
    source = Minibatches(_rows(10), 10)
    order = jax.vmap(lambda e: source.start(key, e))(jnp.arange(2000, dtype=jnp.int32))
    place = np.argmax(np.asarray(order)[:, 0] == 0, axis=1)
    from scipy.stats import chisquare

    assert chisquare(np.bincount(place, minlength=10)).pvalue > 1e-3


def _batches(epoch):
    for i in range(3):
        yield np.full((4, 3), 10 * epoch + i, float), np.zeros(4)


def test_a_stream_goes_on_over_epochs_and_can_be_entered_anywhere():
    stream = tb.Data.from_batches(_batches, num=12)
    walked = HostCursor(stream, lambda y: y).take(0, 7).batches.x[:7, 0, 0]
    np.testing.assert_array_equal(walked, [0, 1, 2, 10, 11, 12, 20])
    entered = HostCursor(stream, lambda y: y, epoch=1, used=2).take(5, 2).batches.x[:2, 0, 0]
    np.testing.assert_array_equal(entered, [12, 20])


def test_a_short_batch_is_filled_up_with_what_comes_next_and_every_row_comes_equally_often():
    x = np.arange(9.0)[:, None]
    stream = tb.Data.from_batches(lambda epoch: ((x[i : i + 4], x[i : i + 4, 0]) for i in (0, 4, 8)), num=9)
    walked = HostCursor(stream, lambda y: y).take(0, 9).batches.x[:9, :, 0]
    np.testing.assert_array_equal(walked.ravel(), np.tile(np.arange(9.0), 4))
    for steps in range(1, 9):
        cursor = HostCursor(stream, lambda y: y)
        cursor.take(0, steps)
        entered = HostCursor(stream, lambda y: y, **cursor.place).take(steps, 1).batches.x[0, :, 0]
        np.testing.assert_array_equal(entered, walked[steps])


def test_a_stream_trains_like_the_data_it_holds(key):
    x = np.random.default_rng(0).normal(size=(24, 3))
    y = x[:, 0]
    stream = tb.Data.from_batches(lambda epoch: [(x, y)], num=24)
    method = tb.MAP(train=tb.Train(300))
    one, two = (method.fit(model(), data, key=key) for data in (stream, tb.Data(x, y)))
    np.testing.assert_allclose(one.predict(x).mean, two.predict(x).mean, atol=1e-3)


def test_bad_streams_are_refused_with_the_batch_named(key):
    def ragged(epoch):
        yield np.zeros((4, 3)), np.zeros(4)
        yield np.zeros((5, 3)), np.zeros(5)

    with pytest.raises(tb.InputError, match=r"batches of one shape, \(4, 3\) .* \(5, 3\) in epoch 0, batch 1"):
        tb.MAP(train=tb.Train(5)).fit(model(), tb.Data.from_batches(ragged, num=7), key=key)
    once = iter([(np.zeros((4, 3)), np.zeros(4))])
    with pytest.raises(tb.InputError, match="batches in every epoch; got none in epoch 1"):
        tb.MAP(train=tb.Train(5)).fit(model(), tb.Data.from_batches(once, num=4), key=key)
    nan = tb.Data.from_batches(
        lambda e: [(np.zeros((4, 3)), np.zeros(4)), (np.full((4, 3), np.nan), np.zeros(4))], num=8
    )
    with pytest.raises(tb.InputError, match="finite numbers in x"):
        tb.MAP(train=tb.Train(5)).fit(model(), nan, key=key)


@pytest.mark.parametrize(
    "method", [tb.MAP(train=tb.Train(2000)), pytest.param(tb.NeuralLinear(), marks=pytest.mark.slow)]
)
def test_rows_of_a_stream_count_as_often_as_their_weights_say(key, method):
    """Half of the rows are wrong and weigh nothing; without weights the mean is off by more than 1."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(24, 3))
    right = np.arange(24) % 2 == 0
    y, weight = np.where(right, x[:, 0], x[:, 0] + 5.0), right.astype(float)
    stream = tb.Data.from_batches(lambda epoch: [(x[:14], y[:14], weight[:14]), (x[14:], y[14:], weight[14:])], num=24)
    made = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(0.1))
    streamed, whole = (method.fit(made, data, key=key, progress=False) for data in (stream, tb.Data(x, y, weight)))
    np.testing.assert_allclose(streamed.predict(x).mean, whole.predict(x).mean, atol=0.02)
    np.testing.assert_allclose(whole.predict(x[right]).mean[:, 0], y[right], atol=0.1)


def test_weights_for_some_batches_alone_are_refused(key):
    x, y = np.zeros((4, 3)), np.zeros(4)
    stream = tb.Data.from_batches(lambda epoch: [(x, y), (x, y, np.ones(4))], num=8)
    with pytest.raises(tb.InputError, match="a weight for every row or for none; got a batch in epoch 0 with weights"):
        tb.MAP(train=tb.Train(5)).fit(model(), stream, key=key)


def test_a_bare_iterable_refuses_checkpoints_and_members(key, tmp_path):
    def bare():
        return tb.Data.from_batches(iter([(np.zeros((4, 3)), np.zeros(4))] * 9), num=4)

    with pytest.raises(tb.InputError, match="can be restarted"):
        tb.MAP(train=tb.Train(5)).fit(model(), bare(), key=key, checkpoint=tmp_path)
    with pytest.raises(tb.InputError, match="can be restarted"):
        tb.Ensemble(tb.MAP(train=tb.Train(5)), 2).fit(model(), bare(), key=key)
    tb.MAP(train=tb.Train(5)).fit(model(), bare(), key=key)


@pytest.mark.slow
def test_streamed_targets_are_put_in_the_likelihoods_form(key):
    """Whole numbers for a Gaussian and floats for classes: the same fit as from memory."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    for y, likelihood in (
        (np.round(5 * x[:, 0]).astype(int), tb.likelihoods.Gaussian(1.0)),
        ((x[:, 0] > 0).astype(float), tb.likelihoods.Bernoulli()),
    ):
        made = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), likelihood)
        whole, stream = tb.Data(x, y), tb.Data.from_batches(lambda epoch, y=y: [(x, y)], num=40)
        weights = [
            tb.MAP(train=tb.Train(500)).fit(made, data, key=key).params.weights["layers"][0]["weight"]
            for data in (whole, stream)
        ]
        np.testing.assert_allclose(weights[0], weights[1], rtol=1e-3)


def test_a_label_that_the_first_batch_did_not_have_is_refused(key):
    x = np.random.default_rng(0).normal(size=(4, 3))
    batches = [(x, np.array([0, 1, 2, 1])), (x, np.array([0, 1, 5, 1]))]
    stream = tb.Data.from_batches(lambda epoch: batches, num=8)
    with pytest.raises(tb.InputError, match="labels from 0 to 2 for Categorical; got labels from 0 to 5"):
        tb.MAP(train=tb.Train(5)).fit(model(likelihood=tb.likelihoods.Categorical()), stream, key=key)
