"""The notebook for users of PyTorch, executed in a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "pytorch.ipynb"


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs. A kernel that dies before its first cell has ended, as when
    another process takes its port, is started once more; what fails later fails."""
    for last in (False, True):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        place = {"metadata": {"path": str(folder)}}
        client = NotebookClient(notebook, timeout=600, startup_timeout=300, resources=place)
        try:
            client.execute()
        except RuntimeError:  # an error in a cell is none
            if last or client.code_cells_executed:
                raise
        else:
            break
    return notebook


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    stored = [len(cell.get("outputs", [])) for cell in nbformat.read(NOTEBOOK, 4).cells]
    notebook = executed(tmp_path)
    assert [bool(len(cell.get("outputs", []))) for cell in notebook.cells] == [*map(bool, stored)]
    watched = str([cell.outputs for cell in notebook.cells if "on_evaluate=" in cell.source])
    assert "<progress" in watched
    assert "accuracy above 0.97" in watched
    assert "is right about" in str(notebook.cells[-1].outputs)
