import html
import html.parser
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
from matplotlib import image

from cli.commands import call, penguins

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = penguins(folder / "data.csv")
    arguments = ("fit", data, "-t", "mass $g$", "-m", "ensemble", "--out", folder / "run", "--hidden", "4")
    assert call(*arguments, "--seconds", "0.1", "-q")[0] == 0
    return folder / "run" / "report.html"


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]


def test_names_from_the_data_are_escaped(page):
    text = page.read_text()
    assert "script" not in Tags(text).tags
    assert "<script>alert" not in text
    assert "bill &lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in text


def test_the_page_needs_no_network(page):
    text = page.read_text()
    addresses = Tags(text).addresses
    assert len(addresses) == 3
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert not re.search(r"https?://|@import|url\(", text)


def test_the_verdict_comes_first(page):
    """Between the title and everything else: the error beside that of guessing, and whether intervals held."""
    text = html.unescape(page.read_text())
    (said,) = re.findall(r'</h1><p class="verdict">(.*?)</p><p class="lead">', text)
    assert "ensemble predicts mass $g$ to within " in said
    assert "(RMSE); guessing the mean gives " in said
    assert re.search(r"Its 90 % intervals covered \d+% of the 12 test rows: ", said)


def test_it_says_what_was_fitted_and_what_came_of_it(page):
    text = page.read_text()
    for words in (
        "Notes on the methods",
        "RMSE",
        "NLL",
        "CRPS",
        "90 % coverage",
        "seconds",
        "Calibration",
        "epistemic sd",
    ):
        assert words in text
    for words in ("MLP(hidden=(4,)", "LogNormal", "Gamma", "Ensemble(method=MAP", "jax ", "seed"):
        assert words in text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to look with")
def test_a_browser_shows_text_and_pictures(page, tmp_path):
    shot = tmp_path / "shot.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with tempfile.TemporaryDirectory() as profile:
        size = ["--window-size=1000,2600", f"--user-data-dir={profile}", f"--screenshot={shot}"]
        subprocess.run([CHROMIUM, *flags, *size, page.as_uri()], check=True, capture_output=True, timeout=120)
    pixels = image.imread(shot)[..., :3]
    inked = (pixels < 0.9).any(axis=2).mean(axis=1)
    assert (inked[:400] > 0).any()
    assert (inked > 0).mean() > 0.5
    blue = (np.abs(pixels - np.array([0x2F, 0x66, 0x90]) / 255) < 0.05).all(axis=2)
    assert blue.sum() > 500
