"""Ceilings on the package's code metrics, as `tools/house.py` measures them."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_stays_below_its_ceilings(house):
    found = house.measured(ROOT / "src" / "tunbridge")
    assert found["classes of methods from Method down, at most"] <= 5
    assert found["longest file"] <= 350
    assert found["files in the largest room"] <= 20
    assert found["overrides of methods that do something"] <= 108
    assert found[f"windows of {house.ALIKE} lines written twice"] <= 15
    assert found["files besides its own that name SGNHT"] <= 2


PACKAGE = """
import abc

class Method:
    @abc.abstractmethod
    def posteriors(self): ...

    def check(self, model):
        '''Return the model.'''
        return model

    def limits(self):
        return -1, ()

    def run(self, steps):
        '''Two lines
        of docstring.'''
        for _ in range(steps):
            self.check(steps)
        return steps

class Iterative(Method):
    def check(self, model):
        return model.bind()

    def limits(self):
        return 2, ()

    def run(self, steps):
        return 0

class Sampler(Iterative):
    def check(self, model):
        return model
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.py").write_text(PACKAGE)
    (tmp_path / "other.py").write_text("x = 1\n")
    return tmp_path


def test_an_override_counts_where_a_parent_computes_something(house, small):
    table = house.classes(house.trees(small))
    assert house.overrides(table) == [("Iterative", "run"), ("Sampler", "check")]
    assert house.measured(small)["classes of methods from Method down, at most"] == 3
    assert house.measured(small)["definitions of `posteriors`"] == 0


def test_lines_of_functions_leave_out_the_docstring(house, small):
    assert sorted(house.functions(house.trees(small))) == [1, 2, 2, 2, 2, 2, 2, 4]


@pytest.mark.parametrize(
    ("body", "is_hook"),
    [
        *((text, True) for text in ("return None", "return x", "return self", "return -1.0", "return {}, x")),
        *((text, False) for text in ("return y", "return x + 1", "return self.x", "x = 1\n    return x")),
    ],
)
def test_a_hook_returns_constants_or_what_it_was_given(house, body, is_hook):
    (function,) = ast.parse(f"def f(self, x):\n    {body}\n").body
    assert house.is_hook(function) is is_hook
