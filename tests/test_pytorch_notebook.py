"""The notebook for users of PyTorch, executed in a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "pytorch.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = [len(cell.get("outputs", [])) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [bool(len(cell.get("outputs", []))) for cell in notebook.cells] == [*map(bool, stored)]
    watched = str([cell.outputs for cell in notebook.cells if "on_evaluate=" in cell.source])
    assert "<progress" in watched
    assert "accuracy above 0.97" in watched
    assert "is right about" in str(notebook.cells[-1].outputs)
