"""The notebook runs again from its first cell to its last, and shows what the stored one shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import ROOT

NOTEBOOK = ROOT / "samples" / "notebook" / "model_to_report.ipynb"
pytestmark = [
    pytest.mark.needs_notebook,
    pytest.mark.needs_shared,
    pytest.mark.needs_report,
    pytest.mark.needs_ort,
    pytest.mark.needs_openvino,
    pytest.mark.needs_tflite,
]
pytest.importorskip("cv2")


def shown(notebook: Any) -> list[str]:
    """What each cell of code shows, without figures, which change from run to run."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = []
    for cell in cells:
        printed = "".join(output.get("text", "") for output in cell.outputs)
        # The line that shows progress is display_data, and is empty where nothing took long.
        data = [sorted(output["data"]) for output in cell.outputs if output.output_type == "execute_result"]
        kinds.append(re.sub(r"[\d.]+", "#", f"{printed}{data}"))
    return kinds


def test_it_runs_and_shows_what_is_stored(shared: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("cards/centerface.toml", "camera/photo.jpg"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / "samples" / name, tmp_path / name)
    folder = tmp_path / "notebook"
    folder.mkdir()
    shutil.copy(shared / "models" / "centerface.onnx", folder)  # as if it had been downloaded before
    stored = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    assert shown(fresh) == shown(stored)
    assert (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert NOTEBOOK.stat().st_size < 100_000
