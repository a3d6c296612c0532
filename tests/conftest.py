"""Every test: rank promotion raises (a silent (n,) against (n, 1) is this field's classic bug), warnings are errors."""

import os

import jax
import matplotlib
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
matplotlib.use("Agg")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key():
    return jax.random.key(20261115)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
