"""Runs of active learning: resumed to the bit, with no label lost, whatever the oracle does."""

import json

import jax
import numpy as np
import pytest

import tunbridge as tb
from tunbridge import acquisition

X = np.random.default_rng(0).normal(size=(60, 2))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
MODEL = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Bernoulli())
METHOD = tb.Laplace(point=tb.MAP(train=tb.Train(50)))
RUN = {"test": (X[40:], Y[40:]), "start": 6, "most": 12, "batch": 2, "key": jax.random.key(0)}


def learned(oracle=Y[:40], rule=None, **changes):
    rule = acquisition.BALD() if rule is None else rule
    return acquisition.learn(MODEL, METHOD, X[:40], oracle, rule, **{**RUN, **changes})


@pytest.fixture(scope="module")
def whole():
    return learned()


def test_rows_are_labelled_until_there_are_enough(whole):
    assert [row["labels"] for row in whole.rows] == [6, 8, 10, 12]
    assert len(set(whole.chosen.tolist())) == 12
    np.testing.assert_array_equal(whole.labels, Y[whole.chosen])
    assert whole.labels_to(0.0) == 6
    assert whole.labels_to(1.1) is None
    assert "accuracy" in str(whole)


def test_a_run_that_is_stopped_between_labels_ends_with_the_same_result(whole, tmp_path):
    class Stop(Exception):
        pass

    def stopping(after):
        def oracle(indices):
            oracle.asked += 1
            if oracle.asked > after:
                raise Stop
            return Y[indices]

        oracle.asked = 0
        return oracle

    for after in (0, 1, 2):  # no answer, then one more in every process
        with pytest.raises(Stop):
            learned(stopping(after), folder=tmp_path)
    done = learned(lambda indices: Y[indices], folder=tmp_path)
    np.testing.assert_array_equal(done.chosen, whole.chosen)
    assert done.rows == whole.rows
    again = learned(stopping(0), folder=tmp_path)  # nothing is asked any more
    assert again.rows == whole.rows


def test_answers_that_are_none_lose_no_label(tmp_path):
    def oracle(indices):
        oracle.asked += 1
        return Y[indices] if oracle.asked < 3 else np.full(len(indices), np.nan)

    oracle.asked = 0
    with pytest.raises(tb.InputError, match="mend the oracle"):
        learned(oracle, folder=tmp_path)
    kept = json.loads(json.loads((tmp_path / "labels.json").read_text())["notes"])
    assert len(kept[0]) == len(kept[1]) == 8


def test_labels_out_of_range_end_in_a_sentence(tmp_path):
    with pytest.raises(tb.InputError, match="from the oracle labels from 0 to 1"):
        learned(lambda indices: np.full(len(indices), 7), folder=tmp_path)
    assert learned(folder=tmp_path).labels.max() == 1


def test_damaged_files_and_other_runs_are_told(tmp_path):
    learned(folder=tmp_path)
    with pytest.raises(tb.CheckpointError, match="another run"):
        learned(folder=tmp_path, batch=3)
    path = tmp_path / "labels.json"
    text = path.read_text()
    path.write_text(text.replace("[", "(", 1))
    with pytest.raises(tb.LoadError, match="Delete it to start anew"):
        learned(folder=tmp_path)
    place = text.index("notes") + 12
    path.write_text(text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :])
    with pytest.raises(tb.LoadError, match="damaged"):
        learned(folder=tmp_path)


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    def oracle(indices):
        learned(folder=tmp_path)
        return Y[indices]

    with pytest.raises(tb.BusyError):
        learned(oracle, folder=tmp_path)


def test_numbers_are_scored_by_their_error():
    y = X[:, 0] - X[:, 1]
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    method = tb.NeuralLinear(tb.MAP(train=tb.Train(1)))
    found = acquisition.learn(
        model, method, X[:40], y[:40], acquisition.BatchBALD(), **{**RUN, "test": (X[40:], y[40:])}
    )
    assert found.rows[-1]["RMSE"] < 0.1
    assert found.labels_to(0.1) is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"most": 41}, "the 40 rows of the pool"),
        ({"most": 3}, "most from 6"),
        ({"first": [1, 1]}, "different indices"),
        ({"first": [40]}, "different indices"),
        ({"oracle": Y}, "a label for each of the 40"),
    ],
)
def test_wrong_arguments_are_refused(changes, words):
    with pytest.raises(tb.InputError, match=words):
        learned(**changes)
