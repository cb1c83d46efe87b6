"""XGBoost, LightGBM and CatBoost, where they are installed; each is compared with its own answers.

Exports of theirs run on every engine in test_exports.py.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.importers.boosted_trees import LIBRARIES, library_of_file
from edgekit.errors import MissingDependency, ModelError
from tests.compiler.importers.right_import import is_right

pytestmark = pytest.mark.needs_ort
HEADS = {
    "XGBoost": (b'{"learner":{"attributes"', b"{L\0\0\0\0\0\0\0\x07learner{L"),
    "LightGBM": (b"tree\nversion=v4\nnum_class=1",),
    "CatBoost": (b"CBM1\x30\0",),
}

NAMES = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}


@pytest.fixture
def rows() -> tuple[Any, Any]:
    """Rows with missing values, and one of three classes for each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 4)).astype(np.float32)
    classes = x[:, :3].argmax(1)
    x[::5, 1] = np.nan
    return x, classes


@pytest.mark.parametrize("name", HEADS)
def test_files_are_known_by_their_content(name: str) -> None:
    for head in HEADS[name]:
        library = library_of_file(head)
        assert library is not None
        assert library.name == name
    assert library_of_file(b"{}") is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("XGBoost", "pip install xgboost onnxmltools skl2onnx"),
        ("LightGBM", "pip install lightgbm onnxmltools skl2onnx"),
        ("CatBoost", "pip install catboost"),
    ],
)
def test_a_missing_library_is_asked_for(name: str, line: str, tmp_path: Path) -> None:
    library = next(each for each in LIBRARIES if each.name == name)
    if find_spec(library.package):
        pytest.skip(f"{library.package} is installed here")
    path = tmp_path / "model.bin"
    path.write_bytes(HEADS[name][0])
    with pytest.raises(MissingDependency) as missing:
        edgekit.import_model(path)
    assert str(missing.value) == (
        f"{library.package} is not installed, and importing {name} models needs it: {line}"
    )


@pytest.mark.parametrize("package", ["xgboost", "lightgbm"])
class TestEstimators:
    @pytest.fixture(autouse=True)
    def installed(self, package: str) -> None:
        pytest.importorskip("onnxmltools")
        library = pytest.importorskip(package)
        prefix = {"xgboost": "XGB", "lightgbm": "LGBM"}[package]
        quiet = {"lightgbm": {"verbose": -1}}.get(package, {})
        self.classifier = getattr(library, f"{prefix}Classifier")(n_estimators=3, **quiet)
        self.regressor = getattr(library, f"{prefix}Regressor")(n_estimators=3, **quiet)

    def test_estimators_and_pipelines(self, package: str, rows: tuple[Any, Any]) -> None:
        from sklearn import pipeline, preprocessing

        x, classes = rows
        is_right(
            edgekit.import_model(self.classifier.fit(x, classes)), NAMES[package], ["label", "probabilities"]
        )
        steps = pipeline.make_pipeline(preprocessing.StandardScaler(), self.regressor).fit(x, x[:, 0])
        found = edgekit.import_model(steps)
        is_right(found, "scikit-learn", ["variable"])
        assert f" with {NAMES[package]} " in found.compared.engine

    def test_a_table_with_named_columns(self, package: str, rows: tuple[Any, Any]) -> None:
        """onnxmltools takes only f0, f1 ... for XGBoost's columns."""
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame(rows[0], columns=["flow", "pressure", "age", "speed"])
        self.regressor.fit(table, rows[0][:, 0])
        is_right(edgekit.import_model(self.regressor), NAMES[package], ["variable"])

    def test_other_results_name_the_library_that_computes(self, package: str, rows: tuple[Any, Any]) -> None:
        self.regressor.fit(rows[0], rows[0][:, 0])
        predict = self.regressor.predict
        self.regressor.predict = lambda x: predict(x) + (len(x) == 1) * 100.0
        message = rf"Regressor: the imported ONNX model gives other results than {NAMES[package]} \d"
        with pytest.raises(ModelError, match=message):
            edgekit.import_model(self.regressor)

    def test_boosters_and_their_files(self, package: str, rows: tuple[Any, Any], tmp_path: Path) -> None:
        x, classes = rows
        self.classifier.fit(x, classes == 1)
        booster = self.classifier.booster_ if package == "lightgbm" else self.classifier.get_booster()
        booster.save_model(str(tmp_path / "model.json"))
        for source in (booster, tmp_path / "model.json"):
            found = edgekit.import_model(source)
            is_right(found, NAMES[package], ["label", "probabilities"])

    def test_the_converter_is_asked_for(
        self, package: str, rows: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edgekit.compiler.importers.boosted_trees.CONVERTER", "a_package_that_is_nowhere")
        with pytest.raises(MissingDependency, match=r"importing XGBoost and LightGBM models needs it: pip"):
            edgekit.import_model(self.regressor.fit(rows[0], rows[1]))


class TestCatBoost:
    catboost: Any

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)  # it writes a folder
        self.catboost = pytest.importorskip("catboost")

    def test_models_and_their_files(self, rows: tuple[Any, Any], tmp_path: Path) -> None:
        x, classes = np.nan_to_num(rows[0]), rows[1]
        model = self.catboost.CatBoostRegressor(iterations=3, verbose=0, allow_writing_files=False).fit(
            x, x[:, 0]
        )
        is_right(edgekit.import_model(model), "CatBoost", ["predictions"])
        model = self.catboost.CatBoostClassifier(iterations=3, verbose=0, allow_writing_files=False).fit(
            x, classes
        )
        model.save_model("model.cbm")
        for source in (model, tmp_path / "model.cbm"):
            is_right(edgekit.import_model(source), "CatBoost", ["label", "probabilities"])

    def test_names_of_classes(self, rows: tuple[Any, Any]) -> None:
        names = np.array(["ant", "bee", "cat"])[rows[1]]
        model = self.catboost.CatBoostClassifier(iterations=3, verbose=0, allow_writing_files=False).fit(
            np.nan_to_num(rows[0]), names
        )
        found = edgekit.import_model(model)
        is_right(found, "CatBoost", ["label", "probabilities"])
        assert list(found.imported.notes) == ["label is an index into the classes ant, bee, cat"]


@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_histogram_based_boosting(kind: str, rows: tuple[Any, Any]) -> None:
    pytest.importorskip("skl2onnx")
    ensemble = pytest.importorskip("sklearn.ensemble")
    model = getattr(ensemble, f"HistGradientBoosting{kind}")(max_iter=3).fit(*rows)
    for _ in range(2):  # the converter is mended once
        outputs = ["label", "probabilities"] if kind == "Classifier" else ["variable"]
        is_right(edgekit.import_model(model), "scikit-learn", outputs)


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_voting(voting: str, rows: tuple[Any, Any]) -> None:
    pytest.importorskip("skl2onnx")
    ensemble = pytest.importorskip("sklearn.ensemble")
    from sklearn import linear_model, tree

    parts = [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))]
    model = ensemble.VotingClassifier(parts, voting=voting, weights=[1, 2])
    model.fit(np.nan_to_num(rows[0]), rows[1])
    is_right(edgekit.import_model(model), "scikit-learn", ["label", "probabilities"])
    assert model.flatten_transform
