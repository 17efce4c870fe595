"""The site is built without a warning, links included, and needs nothing from elsewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

import scafflix as sx


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = (
        r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*href="(?:https?:)?//'
    )
    for page in pages:
        text = re.sub(r'<link rel="canonical"[^>]*>', "", page.read_text())
        assert not re.search(loaded, text), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text()), style.name


def test_the_reference_has_every_public_name(site: Path) -> None:
    reference = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for name in set(sx.__all__) - {"METHODS"}:
        inside = r"\.\w+" if inspect.ismodule(getattr(sx, name)) else ""
        assert re.search(rf'id="scafflix(\.\w+)*\.{name}{inside}"', reference), name


def test_every_method_has_its_lines_in_the_catalogue() -> None:
    catalogue = (ROOT / "docs" / "methods.md").read_text()
    for name in sx.METHODS:
        assert f'title="src/scafflix/methods/{name}.py"' in catalogue, name


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target
