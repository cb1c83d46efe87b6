"""Every block of Python in a document runs, or is marked as a fragment.

The blocks of one document run in their order, in one namespace and in a folder that holds what a reader has:
``detector.onnx``, its ``card.toml``, its bundle ``detector.edgekit``, ``street.jpg``, a model for batches.
The names in ``given`` are those that an app has of its own: frames, arrays, an open session.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from tests.docs.documents import DOCUMENTS, ROOT, name_of, python_blocks
from tests.fixtures.keys import KINDS, key_files
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

pytestmark = pytest.mark.needs_ort
MUST_RUN = {
    "README.md": 1,
    "docs/tutorial.md": 2,
    "docs/runtime.md": 5,
    "docs/runtime-latency.md": 4,
    "docs/cards.md": 1,
    "docs/security.md": 1,
    "docs/raspberry-pi.md": 1,
    "docs/jetson.md": 1,
    "docs/intel.md": 1,
}
"""Documents whose main blocks are no fragments, and how many run at least."""
WITH_BLOCKS = [path for path in DOCUMENTS if any(b.runs for b in python_blocks(path.read_text("utf-8")))]
NEEDS = {"docs/tutorial.md": "ai_edge_litert", "docs/runtime-latency.md": "cv2"}
"""Document -> the package that its blocks need."""
BATCHED = """
<ir_version: 8, opset_import: ["": 17]>
pooled (float[N,3,8,8] image) => (float[N,3,1,1] means) { means = GlobalAveragePool(image) }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has; made once."""
    import edgekit

    folder = tmp_path_factory.mktemp("documents")
    text = COLOUR_FINDER.replace(" image)", " images)").replace("(image)", "(images)")
    card = COLOUR_CARD.replace("inputs.image", "inputs.images") + "\n[latency]\np95_ms = 1000.0\n"
    (folder / "card.toml").write_text(card, "utf-8")
    model = write(folder, text, "detector.onnx")
    edgekit.build(model, targets=["ort"], card=folder / "card.toml").save(folder / "detector.edgekit")
    shutil.copy(folder / "detector.edgekit", folder / "new.edgekit")
    shutil.copy(ROOT / "docs" / "camera.jpg", folder / "street.jpg")
    private, _ = key_files(folder, "release", KINDS["P-256"]())
    (folder / "new.edgekit.sig").write_bytes(sign_file(folder / "new.edgekit", load_private_key(private)))
    batched = write(folder, BATCHED, "model.onnx")
    for name, rows in (("model", 1), ("model-8", 8)):
        built = edgekit.build(batched, targets=["ort"], shapes={"image": (rows, 3, 8, 8)})
        built.save(folder / f"{name}.edgekit")
    return folder


@pytest.fixture
def given(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    from edgekit.runtime import Session

    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    frame = np.full((48, 64, 3), (200, 20, 20), np.uint8)
    images = np.full((1, 3, 32, 32), 0.5, np.float32)
    jpeg = (ROOT / "docs" / "camera.jpg").read_bytes()
    with Session("detector.edgekit") as session:
        yield {
            "__name__": "document",
            "frame": frame,
            "images": images,
            "nv12": np.zeros((frame.shape[0] * 3 // 2, frame.shape[1]), np.uint8),
            "feeds": {"images": images},
            "jpegs": [jpeg] * 3,
            "recorded_frames": [frame] * 160,
            "session": session,
            "show": lambda *_: None,
        }


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=name_of)
def test_blocks_run(path: Path, given: dict[str, Any]) -> None:
    if package := NEEDS.get(name_of(path)):
        pytest.importorskip(package)
    for block in python_blocks(path.read_text("utf-8")):
        if block.runs:
            if "as one" in block.source:
                given["feeds"] = {"image": np.zeros((1, 3, 8, 8), np.float32)}
            try:
                exec(
                    compile("\n" * (block.line - 1) + block.source, str(path), "exec", dont_inherit=True),
                    given,
                )
            except Exception as problem:
                raise AssertionError(f"{name_of(path)}, line {block.line}: {problem!r}") from problem


@pytest.mark.parametrize(("document", "least"), MUST_RUN.items())
def test_main_blocks_are_no_fragments(document: str, least: int) -> None:
    blocks = python_blocks((ROOT / document).read_text("utf-8"))
    assert sum(block.runs for block in blocks) >= least
