"""The notebook of the examples, executed in a real kernel."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "hospitals.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_notebook_runs_in_a_kernel(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (shared_data / "heart").is_dir():
        pytest.skip(f"no heart data in {shared_data}")
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # none is kept
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-2]
    assert "stage>0" in str(last.outputs)
    assert os.environ["SCAFFLIX_DATA"] == str(shared_data)
