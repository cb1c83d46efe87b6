"""Every pass over every real model: the canonical graph answers what the source answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import ModelError
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.shared_models import CASES, feeds

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_ort]


NEWER_ORT = {"vww_96_int8", "resnet8_cifar10_int8_qdq"}
"""Their canonical form holds QuantizeLinear-23, which ONNX Runtime 1.23 has no kernel for."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.needs_ort_after_1_23) if n in NEWER_ORT else n for n in CASES],
)
def test_the_canonical_graph_means_the_same(name: str, shared: Path) -> None:
    case, path = CASES[name], shared / "models" / f"{name}.onnx"
    source = open_model(path, case.shapes)
    spec = signature(source)
    given = feeds(spec[0], case)
    want = Reference(source).run(given)
    names = {node.name for node in source.graph.all_nodes()}
    before = sum(1 for _ in source.graph.all_nodes())

    run_passes(source)

    after = list(source.graph.all_nodes())
    assert signature(source) == spec
    assert (before, len(after)) == case.nodes
    assert len({node.name for node in after}) == len(after)
    kept = sum(node.name in names for node in after)
    assert kept >= 0.9 * len(after), "findings name nodes as the source does"
    got = Reference(source).run(given)
    for output, array in want.items():
        assert snr_db(array, got[output]) >= (60 if case.saturates else 100), output


@pytest.mark.parametrize("name", ["yolox_nano", "silero_vad", "ch_PP-OCRv4_rec_infer"])
def test_the_same_file_gives_the_same_bytes(name: str, shared: Path) -> None:
    def canonical() -> bytes:
        model = open_model(shared / "models" / f"{name}.onnx", CASES[name].shapes)
        run_passes(model)
        return save_model(model)

    first = canonical()
    assert canonical() == first


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing(name: str, shared: Path) -> None:
    model = open_model(shared / "models" / f"{name}.onnx", CASES[name].shapes)
    run_passes(model)
    assert run_passes(model) == []


def test_each_model_with_open_dimensions_says_so(shared: Path) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(shared / "models" / "silero_vad.onnx")
    assert str(caught.value) == (
        "silero_vad.onnx: has dimensions that are not fixed; add a shape, with your numbers:\n"
        "  --shape input=1x576 --shape state=2x1x128\n"
        "  batch (dimension 0 of input): 1\n"
        "  length (dimension 1 of input): 576, Silero's at 16 kHz\n"
        "  length (dimension 1 of state): 1, Silero's at 16 kHz"
    )


def test_every_model_of_the_folder_is_here(shared: Path) -> None:
    assert {path.stem for path in (shared / "models").glob("*.onnx")} == set(CASES)
