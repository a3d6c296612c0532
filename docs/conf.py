"""Sphinx: `make docs`. Warnings are errors, tutorials and tables are executed."""

import os
from pathlib import Path

import tunbridge

os.environ.setdefault("JAX_PLATFORMS", "cpu")
shared = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]  # figures.py and forty.py, for the pages
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, shared))

project, author, copyright = "Tunbridge", "The Tunbridge authors", "The Tunbridge authors"
version = release = tunbridge.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinxcontrib.bibtex"]
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "furo"
html_title = "Tunbridge"
bibtex_bibfiles = ["../src/tunbridge/references.bib"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = False  # a page that fails is a warning: the others are built, and then `make docs` fails
nb_render_markdown_format = "myst"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_use_rtype = False
