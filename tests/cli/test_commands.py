import html
import importlib
import inspect
import json
import re
import shutil
import signal
import time

import numpy as np
import pyarrow as pa
import pytest

import tunbridge as tb
from cli.commands import call, penguins, started
from tunbridge.cli import listing, options
from tunbridge.cli.study import Rows
from tunbridge.datasets import table as tables

demo = importlib.import_module("tunbridge.cli.demo")
QUICK = ("--hidden", "4", "--seconds", "0.1")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A regression and a classification on the same table, each in a folder."""
    folder = tmp_path_factory.mktemp("cli")
    data = penguins(folder / "data.csv")
    common = ["-m", "map", "--ignore", "depth", *QUICK]
    for name, target, other in (("numbers", "mass $g$", "species"), ("classes", "species", "mass $g$")):
        arguments = ["fit", data, "-t", target, "--out", folder / name, "--ignore", other, *common]
        code, said, error = call(*arguments)
        assert code == 0, error
        (folder / f"{name}.txt").write_text(said)
    return folder


def test_a_fit_leaves_a_posterior_how_to_read_its_table_and_a_report(fitted):
    for name in ("numbers", "classes"):
        assert sorted(path.name for path in (fitted / name).iterdir()) == ["posterior.npz", "report.html", "run.json"]
        assert isinstance(tb.load(fitted / name), tb.Standardised)
        facts = json.loads((fitted / name / "run.json").read_text())
        assert facts["scores"][0]["method"] == "map"


def test_predictions_of_numbers_come_with_their_spread(fitted):
    out = fitted / "numbers.parquet"
    code, said, _ = call("predict", fitted / "numbers", fitted / "data.csv", "--out", out, "--mass", "0.8")
    assert (code, said.strip()) == (0, f"60 rows in {out}")
    found = tables.read(out).table
    parts = ("mean", "sd", "lower_80", "upper_80", "aleatoric_sd", "epistemic_sd")
    assert found.column_names == [f"mass $g$_{part}" for part in parts]
    rows = found.to_pydict()
    columns = [rows[f"mass $g$_{part}"] for part in ("lower_80", "mean", "upper_80")]
    assert all(low < mean < high for low, mean, high in zip(*columns, strict=True))


def test_predictions_of_classes_come_with_probabilities(fitted):
    code, said, _ = call("predict", fitted / "classes", fitted / "data.csv")
    assert code == 0
    head, *rows = said.strip().splitlines()
    assert head == '"species","p(Adélie)","p(Gentoo & co)","aleatoric_nats","epistemic_nats"'
    assert len(rows) == 60


def test_a_fit_ends_with_its_verdict(fitted):
    numbers, classes = ((fitted / f"{name}.txt").read_text() for name in ("numbers", "classes"))
    assert "map predicts mass $g$ to within " in numbers
    assert "map predicts the right species for " in classes
    assert "each time gives " in classes


def test_a_report_lists_the_least_certain_rows_only_where_rows_differ(fitted):
    """One network with one noise is as uncertain everywhere, one that names classes is not."""
    alike, apart = ((fitted / name / "report.html").read_text() for name in ("numbers", "classes"))
    assert "None stands out: all 12 test rows are equally uncertain, to within 1%." in alike
    assert "None stands out" not in apart
    assert "aleatoric (nats)" in apart


def test_info_says_what_was_fitted(fitted):
    code, said, _ = call("info", fitted / "classes")
    assert code == 0
    for words in ("one of 2", "Bernoulli", "MAP(step_size", "tunbridge 0", "accuracy"):
        assert words in said


@pytest.mark.slow
def test_a_fit_that_was_cut_says_so_wherever_it_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "check_seconds", lambda seconds: None)
    data = penguins(tmp_path / "data.csv")
    out = tmp_path / "run"
    code, said, error = call("fit", data, "-t", "species", "-m", "map", "--out", out, "--hidden", "4", "--seconds", "0")
    assert code == 0, error
    line = "stopped after 0 of 3,000 steps by the limit of 0 seconds: not run to convergence."
    assert f"map: {line}" in said.splitlines()
    assert f"map: {line}" in (out / "report.html").read_text()
    assert f"Cut: {line}" in call("info", out)[1].splitlines()
    assert str(tb.load(out).cut) == line[:-1]


def test_priors_lists_every_prior():
    code, said, _ = call("priors")
    assert code == 0
    made = {
        name
        for name, thing in ((name, getattr(tb.priors, name)) for name in tb.priors.__all__)
        if inspect.isclass(thing) and issubclass(thing, tb.priors.AbstractPrior) and not inspect.isabstract(thing)
    }
    assert set(re.findall(r"^│ (\w+)", said, re.M)) == made


@pytest.mark.parametrize("width", [60, 80])
def test_methods_lists_every_method_in_a_narrow_terminal_too(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    code, said, _ = call("methods")
    assert code == 0
    assert max(map(len, said.splitlines())) <= width
    assert all(f" {name} " in said for name in tb.METHODS)
    words = " ".join(part for line in said.splitlines() for part in line.split("│")[2:3]).split()
    assert {"features", "momentum,", "thermostat:"} <= set(words)


def test_docstrings_and_promises_read_from_the_source_are_those_of_the_classes():
    for name, cls in tb.METHODS.items():
        assert listing.docstring(tb.METHODS.place(name)).split() == cls.__doc__.split()
        assert listing.promised(tb.METHODS.place(name)) == {
            promise.kind for promise in tb.bench.PROMISES[name].values()
        }


def test_a_method_without_promises_is_listed_with_a_dash(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setitem(tb.METHODS._registered, "mine", "toys:Walk")
    code, said, _ = call("methods")
    assert code == 0
    assert re.search(r"mine +│ Random-walk Metropolis: the smallest method that keeps draws +│ - ", said)


@pytest.mark.slow
def test_several_targets_are_fitted_together(tmp_path):
    data = penguins(tmp_path / "data.parquet")
    targets = ("-t", "mass $g$", "-t", "depth")
    code, said, error = call("fit", data, *targets, "-m", "map", "--out", tmp_path / "run", *QUICK, "-q")
    assert code == 0, error
    code, said, _ = call("predict", tmp_path / "run", data)
    assert '"depth_mean"' in said.splitlines()[0]


def test_compare_writes_one_report_about_all(tmp_path):
    data = penguins(tmp_path / "data.csv")
    given = ("--methods", "map,ensemble", "--out", tmp_path / "out", "--hidden", "4", "--seconds", "60")
    code, said, error = call("compare", data, "-t", "species", *given)
    assert code == 0, error
    assert "Target 'species': one of 2 classes ('Adélie', 'Gentoo & co')." in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "species by 6 methods" in page
    for words in ("What to use", "Cost of prediction", "map calibrated", "nats per row", "<pre>tunbridge fit "):
        assert words in page
    for words in ("ms a row", "NLL on 12 test rows", "use "):
        assert words in said
    command = next(line for line in said.splitlines() if line.startswith("To fit it: "))
    assert re.search(r"fit \S+data.csv --target species --hidden 4 --seconds 60.0 --method (map|ensemble)$", command)
    assert command.removeprefix("To fit it: ") in html.unescape(page)
    assert max(len(line) for line in said.splitlines() if line != command) <= 120
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


@pytest.mark.slow
def test_the_demo_leaves_one_report_about_a_table_and_a_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_ON_TABLE", ("ridge", "boosting"))
    monkeypatch.setattr(demo, "_ON_CURVE", ("map",))
    code, said, error = call("demo", "--out", tmp_path / "demo", "--quiet")
    assert code == 0, error
    assert said.splitlines()[-1] == f"Report: {tmp_path / 'demo' / 'report.html'}"
    for words in ("predicts flavanoids to within", "map is nearest to the reference posterior"):
        assert words in said
    page = (tmp_path / "demo" / "report.html").read_text()
    assert '<p class="verdict">' in page
    assert "methods beside the reference posterior" in page
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["report.html", "wine.csv"]
    assert call("demo", "--out", tmp_path / "demo", "--quiet")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fit", "{data}", "-t", "nothing"), "the column 'nothing'"),
        (("fit", "{data}", "-t", "species", "-m", "magic"), "a method of auto, map, ensemble"),
        (("fit", "{data}", "-t", "species", "--hidden", "ten"), "--hidden as whole numbers"),
        (("fit", "{data}", "-t", "species", "--test-share", "1.5"), "--test-share"),
        (("fit", "{data}", "-t", "species", "--test-share", "nan"), "--test-share"),
        (("fit", "{data}", "-t", "species", "--seed", "99999999999999999999"), "--seed"),
        (("fit", "{data}", "-t", "species", "--seconds", "nan"), "--seconds above 0"),
        (("fit", "{data}", "-t", "species", "--ignore", "species"), "a target that is not ignored"),
        (("fit", "{gaps}", "-t", "species"), "'island' (lines 5, 19; 2 in all)"),
        (("fit", "none.csv", "-t", "species"), "there is none"),
        (("fit", "{data}", "-t", "species", "--out", "{data}"), "a folder as --out"),
        (("predict", "{folder}", "{data}"), "a folder that `tunbridge fit` wrote"),
        (("info", "{folder}"), "a folder that `tunbridge fit` wrote"),
        (("compare", "{data}", "-t", "species", "--methods", "map,magic"), "a method of auto, map"),
    ],
)
def test_a_wrong_call_ends_with_one_sentence_and_leaves_nothing(arguments, sentence, tmp_path):
    data, gaps = penguins(tmp_path / "data.csv"), penguins(tmp_path / "gaps.csv", missing=True)
    places = {"data": data, "gaps": gaps, "folder": tmp_path}
    before = sorted(tmp_path.iterdir())
    filled = [argument.format(**places) for argument in arguments]
    if "--out" not in filled and filled[0] in ("fit", "compare"):
        filled += ["--out", str(tmp_path / "run")]
    code, said, error = call(*filled)
    assert code == 2
    assert error.startswith("Error: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert "Traceback" not in error + said
    assert sorted(tmp_path.iterdir()) == before


def test_results_are_not_overwritten_unless_asked(fitted):
    arguments = ("fit", fitted / "data.csv", "-t", "species", "--out", fitted / "classes")
    code, _, error = call(*arguments)
    assert code == 2
    assert "--overwrite" in error
    assert tb.load(fitted / "classes") is not None


def test_rows_with_missing_values_may_be_left_out(fitted, tmp_path):
    gaps = penguins(tmp_path / "gaps.csv", missing=True)
    code, _, error = call("predict", fitted / "classes", gaps)
    assert code == 2
    assert "'island' (lines 5, 19; 2 in all)" in error
    assert "--drop-missing" in error
    code, said, _ = call("predict", fitted / "classes", gaps, "--drop-missing")
    assert code == 0
    rows = said.strip().splitlines()
    assert len(rows) == 59
    assert rows[4].startswith("5,")


def test_what_is_left_out_is_counted_wherever_it_stands(tmp_path):
    table = tables.read(penguins(tmp_path / "data.csv", 20)).table
    gone = pa.array([None if i >= 15 else i for i in range(20)], pa.int64())
    tables.write(table.append_column("late", gone), tmp_path / "late.csv")
    rows = Rows.read(tmp_path / "late.csv", ["species"], drop_missing=True)
    assert "15 rows, 5 left out" in " ".join(rows.said())


@pytest.mark.slow
def test_a_comparison_takes_the_place_of_a_fit(fitted, tmp_path):
    shutil.copytree(fitted / "classes", tmp_path / "out")
    arguments = ("compare", fitted / "data.csv", "-t", "species", "-m", "map", "--out", tmp_path / "out", *QUICK)
    assert call(*arguments, "--overwrite")[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_new_levels_and_lost_columns_are_named(fitted, tmp_path):
    table = tables.read(fitted / "data.csv").table
    odd = table.set_column(1, "island", pa.array(["Mauritius"] * 60))
    tables.write(odd, tmp_path / "odd.csv")
    tables.write(table.drop_columns(["island"]), tmp_path / "less.csv")
    assert "got 'Mauritius', first in line 2" in call("predict", fitted / "classes", tmp_path / "odd.csv")[2]
    assert "the column 'island'" in call("predict", fitted / "classes", tmp_path / "less.csv")[2]


def test_a_damaged_run_is_refused_in_a_sentence(fitted, tmp_path):
    for name, text in (("run.json", "{"), ("run.json", '{"format": 99}'), ("posterior.npz", "x")):
        shutil.copytree(fitted / "classes", tmp_path / "copy", dirs_exist_ok=True)
        (tmp_path / "copy" / name).write_text(text)
        code, _, error = call("predict", tmp_path / "copy", fitted / "data.csv")
        assert code in (1, 2)
        assert error.count("\n") == 1
        assert "Traceback" not in error


def test_what_nobody_foresaw_is_a_sentence_too(monkeypatch, tmp_path):
    from tunbridge.cli import study

    def fail(*arguments, **options):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(study, "compare", fail)
    data = penguins(tmp_path / "data.csv")
    code, _, error = call("fit", data, "-t", "species", "--out", tmp_path / "run")
    assert code == 1
    assert "This should not happen (ZeroDivisionError: by nought)" in error
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("TUNBRIDGE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        call("fit", data, "-t", "species", "--out", tmp_path / "run")


@pytest.mark.slow
def test_an_interrupt_says_where_to_go_on_and_the_same_command_does(tmp_path):
    """A real process and a real signal; the result is that of a run that nobody interrupted, to the bit."""
    data = penguins(tmp_path / "data.csv")
    common = ["fit", data, "-t", "species", "-m", "map", "--hidden", "300,300", "-q"]
    run = tmp_path / "run"
    process = started(*common, "--out", run)
    deadline = time.time() + 60
    while not list(run.glob("checkpoint/*/*/state.npz")) and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert (
        error
        == f"\nInterrupted. {run / 'checkpoint'} holds the progress so far; the same command resumes from there.\n"
    )
    assert said == ""
    code, _, another = call(*common, "--out", run, "--seed", 1)
    assert code == 2
    assert '"seed": 0' in another
    assert "--overwrite to discard it" in another
    assert [path.name for path in run.iterdir()] == ["checkpoint"]
    for out in (run, tmp_path / "whole"):
        assert call(*common, "--out", out)[0] == 0
    one, two = (tb.load(out).predict([[40.0, 0, 1, 0, 1, 3000.0, 4.0]]).probs for out in (run, tmp_path / "whole"))
    assert (one == two).all()
    assert not (run / "checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-t", "species", "--likelihood", "poisson"), "numbers in 'species' for --likelihood poisson"),
        (("-t", "species", "--likelihood", "ordinal"), "Number its values in their order"),
        (
            ("-t", "depth", "--likelihood", "laplace", "--task", "classification"),
            "--task regression for --likelihood laplace",
        ),
        (("-t", "depth", "--likelihood", "poisson"), "whole numbers from 0 on as y of Poisson"),
        (("-t", "depth", "--likelihood", "Categorical", "--task", "regression"), "--task classification for"),
    ],
)
def test_a_likelihood_that_does_not_fit_the_target_is_refused_in_a_sentence(arguments, said, tmp_path):
    data = penguins(tmp_path / "data.csv")
    code, _, error = call("fit", data, "--out", tmp_path / "run", "-m", "map", *QUICK, *arguments)
    assert code == 2
    assert said in error


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        (
            "--prior",
            "magic",
            "a prior of normal, laplace, studentt, horseshoe, ard, exchangeable, matrixnormal, cauchy, ",
        ),
        ("--prior", "LogDensity", "got 'LogDensity', which needs function"),
        ("--likelihood", "magic", "a likelihood of gaussian, "),
    ],
)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_an_unknown_prior_or_likelihood_is_refused_before_the_table_is_read(command, option, name, said, tmp_path):
    (tmp_path / "rows.csv").write_text("not a table")
    code, _, error = call(command, tmp_path / "rows.csv", "-t", "y", option, name, "--out", tmp_path / "run")
    assert code == 2
    assert said in error
    assert not (tmp_path / "run").exists()


def test_a_prior_and_a_likelihood_are_named_as_their_classes_are(tmp_path):
    data = penguins(tmp_path / "data.csv")
    rows = Rows.read(data, ["species"], likelihood="Noisy-Categorical", prior="SpikeAndSlab")
    assert type(rows.model.prior) is tb.priors.SpikeAndSlab
    assert type(rows.model.likelihood) is tb.likelihoods.NoisyCategorical
    assert rows.model.likelihood.classes == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heteroscedastic", "studentt", "laplace", "poisson", "negativebinomial", "ordinal"])
def test_each_likelihood_fits_reports_and_predicts(name, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = {"ordinal": np.digitize(x, [-1.0, 0.0, 1.0]) + 8, "poisson": rng.poisson(np.exp(x))}
    y["negativebinomial"] = y["poisson"]
    path = tmp_path / "data.csv"
    tables.write(pa.table({"x": x, "y": y.get(name, x + rng.normal(size=60))}), path)
    arguments = ["-t", "y", "--likelihood", name, "--out", tmp_path / "run", "-m", "map", *QUICK]
    code, _, error = call("fit", path, *arguments)
    assert (code, error) == (0, "")
    assert (tmp_path / "run" / "report.html").exists()
    code, said, error = call("predict", tmp_path / "run", path)
    assert (code, error) == (0, "")
    head = said.splitlines()[0]
    assert ("p(8)" in head and head.index("p(9)") < head.index("p(10)")) if name == "ordinal" else ("y_mean" in head)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", "studentt", "horseshoe", "ard"])
def test_each_prior_fits_reports_and_predicts(name, tmp_path):
    arguments = ["-t", "species", "--prior", name, "--out", tmp_path / "run", "-m", "map", *QUICK]
    code, _, error = call("fit", penguins(tmp_path / "data.csv", 40), *arguments)
    assert (code, error) == (0, "")
    code, said, error = call("predict", tmp_path / "run", tmp_path / "data.csv")
    assert (code, error) == (0, "")
    assert "p(" in said.splitlines()[0]


def test_a_method_for_shallow_networks_is_given_its_model(tmp_path):
    data = penguins(tmp_path / "data.csv")
    rows = Rows.read(data, ["mass $g$"], parts=tb.ReversibleJump.parts, hidden="4")
    assert rows.model.network == tb.networks.Shallow(4)
    assert rows.model.prior.discrete
    with pytest.raises(tb.InputError, match="one hidden layer"):
        Rows.read(data, ["mass $g$"], parts=tb.ReversibleJump.parts, hidden="4,4")


@pytest.mark.slow
def test_shallow_networks_are_fitted_and_compared_from_the_command_line(tmp_path):
    data = penguins(tmp_path / "data.csv")
    for command, methods in (("fit", "reversiblejump"), ("compare", "gibbsmetropolis,map")):
        option = "--method" if command == "fit" else "--methods"
        arguments = ["-t", "mass $g$", "--ignore", "depth", "--ignore", "species", "--hidden", "4", "--quiet"]
        code, _, error = call(command, data, *arguments, option, methods, "--out", tmp_path / command)
        assert (code, error) == (0, "")
        assert (tmp_path / command / "report.html").exists()
    code, said, _ = call("predict", tmp_path / "fit", data)
    assert code == 0
    assert "mean" in said.splitlines()[0]
