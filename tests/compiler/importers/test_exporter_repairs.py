"""Estimators whose exporter is wrong are repaired; scikit-learn's own answers are the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array

pytestmark = pytest.mark.needs_ort

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
