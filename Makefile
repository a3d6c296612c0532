# Everything a fresh machine needs: python3 (3.11 or newer), pip, make and git.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all test-lowest testing lint fast all docs bench clean

demo: $(VENV)/.core            ## a real table and a curve with a gap, in about a minute: demo/report.html
	$(BIN)/tunbridge demo --out demo --overwrite

test: $(VENV)/.test            ## style and types beside everything but the slow tests
	$(MAKE) -j 2 lint fast

test-all: $(VENV)/.test        ## the slow tests too
	$(MAKE) -j 2 lint all

fast: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

all: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile

test-lowest:                   ## the tests with the lowest version of every dependency, in build/lowest
	$(PYTHON) -m venv build/lowest
	$(PYTHON) tools/lowest.py > build/lowest.txt
	build/lowest/bin/python -m pip install --quiet -c build/lowest.txt -e ".[test]"
	build/lowest/bin/python -m pytest -n auto --dist loadfile -m "not slow"

testing: $(VENV)/.test         ## docs/testing.md: what tests cost with nothing compiled before, and what they notice
	rm -rf build/testing && mkdir -p build/testing
	env XDG_CACHE_HOME=$(CURDIR)/build/testing PYTHONPATH=tests $(BIN)/python -m pytest -n auto --dist loadfile \
		-m "not slow" -p measure --costs build/testing/costs.json
	$(BIN)/python benchmarks/mutants.py
	$(BIN)/python benchmarks/testing.py build/testing/costs.json

lint: $(VENV)/.test            ## style, types and the dependency rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs            ## build docs/_build/html; a warning is an error
	mkdir -p docs/_build
	env -u MPLBACKEND $(BIN)/python -m sphinx -j auto -E -a -W --keep-going -w docs/_build/warnings.txt \
		-b html docs docs/_build/html || { echo "These pages failed:"; cat docs/_build/warnings.txt; exit 1; }

bench: $(VENV)/.test           ## the figures of docs/benchmarks.md and of tutorials
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/members.py
	$(BIN)/python benchmarks/prediction.py
	$(BIN)/python benchmarks/aleatoric.py
	$(BIN)/python benchmarks/ensemble_size.py
	$(BIN)/python benchmarks/dropout_study.py
	$(BIN)/python benchmarks/wide_limits.py
	$(BIN)/python benchmarks/priors.py speed
	$(BIN)/python benchmarks/priors.py sparsity
	$(BIN)/python benchmarks/priors.py scale
	$(BIN)/python benchmarks/mcmc.py rates
	$(BIN)/python benchmarks/mcmc.py memory

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Tunbridge needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another with make PYTHON=python3.12") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.core: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@ $(VENV)/.core

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[test,docs]"
	touch $@ $(VENV)/.test $(VENV)/.core

clean:
	rm -rf $(VENV) build dist docs/_build demo
