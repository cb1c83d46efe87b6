"""Exports of PyTorch: example inputs, repairs, and what cannot be traced."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.importers.pytorch import _untraceable
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.reference import Reference
from edgekit.runtime import Session
from edgekit.tensor_spec import Array

EXPORTS = Path(__file__).parent / "exports"
ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("tflite", marks=[pytest.mark.needs_ort, pytest.mark.needs_tflite]),
    pytest.param("openvino", marks=[pytest.mark.needs_ort, pytest.mark.needs_openvino]),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("export", sorted(EXPORTS.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_frameworks_answers(export: Path, engine: str, tmp_path: Path) -> None:
    bundle = edgekit.build(export, targets=[engine])
    bundle.save(tmp_path / "b.edgekit")
    with (
        np.load(export.with_suffix(".npz")) as saved,
        Session(tmp_path / "b.edgekit", engine=engine) as session,
    ):
        (name,) = bundle.golden[0][0]
        for number, sample in enumerate(saved[name]):
            for output, got in session.run({name: sample[None]}).items():
                want = saved[output][number]
                if got.dtype.kind == "i":
                    assert got.ravel() == want
                else:
                    scale = max(float(np.abs(saved[output]).max()), 1e-6)
                    np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=0, atol=2e-5 * scale)


pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_mapping_is_keyword_arguments(kind: Any) -> None:
    pytest.importorskip("onnxscript")
    torch: Any = pytest.importorskip("torch")

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(100, 8)

        def forward(self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Any:
            return {"pooled": (self.table(input_ids) * attention_mask[..., None]).sum(1)}

    ids, mask = torch.randint(5, 90, (1, 32)), torch.ones(1, 32, dtype=torch.long)
    example = kind({"attention_mask": mask, "input_ids": ids})
    found = edgekit.import_model(Encoder().eval(), example_inputs=example)
    assert {spec.name for spec in found.inputs} == {"input_ids", "attention_mask"}
    assert found.compared.samples == 1
    assert found.compared.outputs["pooled"].within_limit


pytest.importorskip("skl2onnx")


@pytest.fixture
def table() -> tuple[Array, Array]:
    rng = np.random.default_rng(12)
    x = rng.standard_normal((400, 5)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] ** 2 + rng.normal(size=400) > 1).astype(int)


def scores(model: Any, x: Array) -> Array:
    onnx_file = edgekit.import_model(model).imported.onnx
    reference = Reference(open_bytes(onnx_file, "M", {"X": x.shape}))
    return list(reference.run({"X": x}).values())[-1]


@pytest.mark.parametrize("kind", ["forest", "logistic"])
def test_isotonic_calibration_interpolates(table: tuple[Array, Array], kind: str) -> None:
    from sklearn import calibration, ensemble, linear_model

    base = ensemble.RandomForestClassifier(10, max_depth=4, random_state=1)
    model = base if kind == "forest" else linear_model.LogisticRegression()
    fitted = calibration.CalibratedClassifierCV(model, method="isotonic", cv=3).fit(
        table[0][:300], table[1][:300]
    )
    rows = table[0][300:]
    errors = np.abs(scores(fitted, rows) - fitted.predict_proba(rows)).max(1)
    assert np.mean(errors < 1e-4) >= 0.98  # a step of one float32 may be on either side
    assert np.median(errors) < 1e-5


def test_neighbours_are_weighted_by_distance(table: tuple[Array, Array]) -> None:
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    x, y = table
    rows = x[300:]
    classifier = KNeighborsClassifier(6, weights="distance").fit(x[:300], y[:300])
    assert np.abs(scores(classifier, rows) - classifier.predict_proba(rows)).max() < 1e-4
    regressor = KNeighborsRegressor(6, weights="distance").fit(x[:300], x[:300, 0])
    found = scores(regressor, rows).ravel()
    assert np.abs(found - regressor.predict(rows)).max() < 1e-4


def raised(forward: Any) -> Exception:
    with pytest.raises(RuntimeError) as error:
        forward()
    return error.value


def test_the_line_of_a_branch_on_values() -> None:
    def forward() -> None:
        raise RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)")

    line = forward.__code__.co_firstlineno + 1
    assert _untraceable(SimpleNamespace(), raised(forward)) == (
        f"a branch or a size depends on the values of a tensor (test_exports.py, line {line}), which "
        "torch.export can't trace: write the branch with torch.where, or keep that part outside the module"
    )


def test_an_error_without_a_traceback() -> None:
    problem = RuntimeError("a data-dependent size")
    assert "the values of a tensor, which torch.export can't trace" in _untraceable(
        SimpleNamespace(), problem
    )


def test_other_errors_have_no_known_reason() -> None:
    module = SimpleNamespace(modules=list)
    assert _untraceable(module, RuntimeError("broken")) == ""
