"""Compiled programs are found by the next process, where the user says, and without a word."""

import os
import subprocess
import sys

import jax
import pytest
from numpyro.distributions import Distribution

import tunbridge as tb
from cli.commands import penguins
from toys import model, table
from tunbridge.runtime import programs

FIT = """
import jax

jax.random.key(1)  # compiled before anybody says where
asked = []
jax.monitoring.register_event_listener(lambda event, **_: asked.append(event.rsplit("/", 1)[1]))
import tunbridge as tb

model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
tb.MAP(train=tb.Train(3)).fit(model, tb.Data([[0.0], [1.0]], [0.0, 1.0]), key=jax.random.key(0))
print(asked.count("cache_hits"), asked.count("cache_misses"), jax.config.jax_compilation_cache_dir)
"""


LOAD = """
import jax

asked = []
jax.monitoring.register_event_listener(lambda event, **_: asked.append(event.rsplit("/", 1)[1]))
import tunbridge as tb

tb.load("{folder}").predict([[0.0, 1.0, 2.0]]).mean
print(asked.count("cache_hits"), asked.count("cache_misses"), jax.config.jax_compilation_cache_dir)
"""


KEEP = """
import jax
from tunbridge.runtime import programs

{before}
programs.keep()
print(jax.config.jax_compilation_cache_dir)
"""


def _run(script, home, **variables):
    """What a process of its own says, without the settings of these tests."""
    return _call([sys.executable, "-c", script], home, **variables)


def _call(command, home, **variables):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TF_CPP", "TUNBRIDGE"))}
    environment = own | {"XDG_CACHE_HOME": str(home)} | variables
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def _counted(script, home):
    """Hits, misses and the folder of a process."""
    hits, misses, folder = _run(script, home).split()
    return int(hits), int(misses), folder


def _finds_all_again(script, home):
    """Whether a process compiles something, and a second one nothing."""
    _, first, folder = _counted(script, home)
    hits, second, _ = _counted(script, home)
    return first > 0 and folder == str(next((home / "tunbridge").iterdir())) and hits > 0 and second == 0


@pytest.mark.slow
def test_a_second_process_finds_every_program_of_the_first(tmp_path):
    assert _finds_all_again(FIT, tmp_path)


@pytest.mark.slow
def test_a_second_process_that_predicts_finds_every_program_of_the_first(tmp_path):
    tb.MAP(train=tb.Train(3)).fit(model(), table(), key=jax.random.key(0)).save(tmp_path / "run")
    assert _finds_all_again(LOAD.format(folder=tmp_path / "run"), tmp_path)


@pytest.mark.parametrize(
    ("before", "variables", "folder"),
    [
        ("", {"JAX_COMPILATION_CACHE_DIR": "{home}/other"}, "{home}/other"),
        pytest.param(
            'jax.config.update("jax_compilation_cache_dir", "{home}/other")', {}, "{home}/other", marks=pytest.mark.slow
        ),
        pytest.param('jax.config.update("jax_enable_compilation_cache", False)', {}, "None", marks=pytest.mark.slow),
        ("", {"TUNBRIDGE_CACHE": "0"}, "None"),
    ],
)
def test_what_the_user_says_comes_first(before, variables, folder, tmp_path):
    said = {name: value.format(home=tmp_path) for name, value in variables.items()}
    script = KEEP.format(before=before.format(home=tmp_path))
    assert _run(script, tmp_path, **said) == folder.format(home=tmp_path)
    assert not (tmp_path / "tunbridge").exists()


ORDER = """
from tunbridge.runtime import programs

programs.settle_order()
import jax
import numpyro.distributions as dist

for made in (dist.Gamma(0.5, 2.0), dist.LogNormal(0.1, 0.7), dist.StudentT(3.0, 1.0, 2.0), dist.HalfNormal(3.0)):
    leaves, kind = jax.tree.flatten(made)
    again = jax.tree.unflatten(kind, leaves)
    assert made.log_prob(1.5) == again.log_prob(1.5)
    print([float(leaf) for leaf in leaves])
"""


@pytest.mark.slow
def test_distributions_are_flattened_in_the_same_order_by_every_process():
    said = set()
    for seed in range(2):
        own = os.environ | {"PYTHONHASHSEED": str(seed)}
        done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, env=own, check=True)
        said.add(done.stdout)
    assert len(said) == 1


def test_an_order_that_may_be_in_use_is_left_alone():
    before = Distribution.gather_pytree_data_fields
    programs.settle_order()
    assert Distribution.gather_pytree_data_fields == before


def test_programs_of_another_processor_are_kept_apart(tmp_path, monkeypatch):
    info, found = tmp_path / "cpuinfo", set()
    monkeypatch.setattr(programs, "_FEATURES", info)
    for line in ("flags : sse avx", "flags : avx sse", "flags : sse avx avx512f", "Features : fp asimd"):
        info.write_text(f"processor : 0\n{line}\n\nprocessor : 1\n{line}\n")
        found.add(programs._processor())
    info.unlink()
    assert len(found | {programs._processor()}) == 4


def test_a_home_that_cannot_be_written_to_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert programs._folder.__wrapped__() is None


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, "3"),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
        ({"TF_CPP_MIN_LOG_LEVEL": "1"}, "3"),  # inherited from a process that imported JAX, which sets it
    ],
)
def test_messages_of_the_loader_are_left_out_unless_asked_for(given, level, tmp_path):
    script = "import os, tunbridge; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    assert _run(script, tmp_path, **given) == level


@pytest.mark.parametrize(("given", "said"), [({}, ["3"]), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, [])])
def test_messages_of_the_loader_are_left_out_where_jax_came_first_and_the_user_names_a_folder(given, said, tmp_path):
    heard = "from jaxlib import utils; utils.absl_set_min_log_level = print"
    folder = str(tmp_path / "other")
    script = KEEP.format(before=heard)
    assert _run(script, tmp_path, JAX_COMPILATION_CACHE_DIR=folder, **given).split() == [*said, folder]


@pytest.mark.slow
def test_a_second_fit_from_the_command_line_writes_nothing_to_standard_error(tmp_path):
    data = penguins(tmp_path / "data.csv")
    quick = ["-m", "map", "--hidden", "4", "--seconds", "0.1", "--ignore", "mass $g$", "--overwrite"]
    command = [sys.executable, "-m", "tunbridge", "fit", data, "-t", "species", "--out", tmp_path / "run", *quick]
    for given in ({}, {}, {"TF_CPP_MIN_LOG_LEVEL": "1"}):  # the last as if started by a process that imported JAX
        assert "Posterior: " in _call(command, tmp_path, **given)
