"""Sphinx: `make docs`. Warnings are errors, tutorials and tables are executed."""

import os
from pathlib import Path

from sphinx.util.parallel import make_chunks

import tunbridge

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a page per core: LAPACK's threads would wait for each other,
os.environ["XLA_FLAGS"] = "--xla_cpu_parallel_codegen_split_count=1"  # and nothing compiles in parallel
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


def setup(app):
    """Read pages in an order that gives each of Sphinx's processes its share of those that are executed."""
    app.connect("env-before-read-docs", _deal)


def _deal(app, env, docnames):
    """Sphinx cuts the list into chunks, one after another (`make_chunks`); by name, all tutorials would be in one."""
    pages = sorted(docnames, key=lambda name: ("{code-cell}" not in Path(env.doc2path(name)).read_text(), name))
    chunks = make_chunks(pages, app.parallel)
    sizes = [len(chunk) for chunk in chunks]
    dealt = [[] for _ in sizes]
    for page in pages:
        place = min((k for k in range(len(sizes)) if len(dealt[k]) < sizes[k]), key=lambda k: len(dealt[k]))
        dealt[place].append(page)
    docnames[:] = [page for chunk in dealt for page in chunk]
