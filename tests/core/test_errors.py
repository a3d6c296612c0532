import pickle

import tunbridge as tb
from tunbridge.core.errors import NumericalError, Result


def test_an_input_error_reads_as_three_parts_and_survives_pickling():
    error = pickle.loads(pickle.dumps(tb.InputError("a cat", "a dog", "Bring a cat.")))
    assert str(error) == "Expected a cat; got a dog. Bring a cat."
    assert isinstance(error, ValueError)


def test_every_result_has_a_sentence():
    assert all(result.sentence.endswith(".") for result in Result)


def test_a_numerical_error_says_where_and_what_is_saved():
    error = pickle.loads(pickle.dumps(NumericalError(Result.NONFINITE_STATE, 7, 2, "All is saved.")))
    assert str(error).startswith("Stopped at step 7 of member 2: The state became NaN")
    assert str(error).endswith("All is saved.")
