"""Tables with named columns, and what scikit-learn's models are refused for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.importers.scikit_learn import _export
from edgekit.errors import ModelError, UsageError
from tests.compiler.importers.right_import import is_right

pytestmark = pytest.mark.needs_ort

pandas = pytest.importorskip("pandas")
pytest.importorskip("skl2onnx")
compose = pytest.importorskip("sklearn.compose")


@pytest.fixture
def table() -> Any:
    rng = np.random.default_rng(0)
    rows = pandas.DataFrame(rng.normal(size=(120, 2)), columns=["flow", "pressure"])
    rows["site"] = rng.choice(["north", "south", "east"], 120)
    rows["day"] = rng.choice(["mo", "tu"], 120)
    rows["level"] = rng.integers(3, 6, 120)
    return rows


def fitted(table: Any, remainder: str = "passthrough") -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    steps = [("n", StandardScaler(), ["flow"]), ("c", filled, ["site"]), ("o", OneHotEncoder(), ["level"])]
    if remainder == "passthrough":
        steps.append(("d", OrdinalEncoder(), ["day"]))
    model = make_pipeline(compose.ColumnTransformer(steps, remainder=remainder), Ridge())
    return model.fit(table, table["flow"] + (table["site"] == "north") + table["level"] ** 2)


@pytest.mark.parametrize("remainder", ["passthrough", "drop"])
def test_a_table_becomes_a_row_of_numbers(table: Any, remainder: str) -> None:
    model = fitted(table, remainder)
    found = edgekit.import_model(model)
    is_right(found, "scikit-learn", ["variable"])
    days = "; day is an index into mo, tu" if remainder == "passthrough" else ""
    assert found.imported.notes == (
        "the columns of X are flow, pressure, site, day, level; site is an index into east, north, "
        f"south{days}",
    )
    compared = edgekit.import_model(model, example_inputs=table.head(5)).compared
    assert compared.samples == 5
    assert model[0].feature_names_in_[0] == "flow"  # the user's model is as it was


def test_a_vectorizer_of_texts_is_refused(table: Any) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    columns = compose.ColumnTransformer([("words", TfidfVectorizer(), "site")]).fit(table)
    with pytest.raises(ModelError) as refused:
        edgekit.import_model(columns)
    assert str(refused.value) == (
        'ColumnTransformer: its step words takes the column "site" as a list of texts; EdgeKit builds models '
        "of numbers. Run that step in your app, and pass the steps behind it"
    )


def test_example_inputs_of_an_estimator_are_compared(table: Any) -> None:
    from sklearn.neighbors import KNeighborsRegressor

    x = table[["flow", "pressure"]].to_numpy(np.float32)
    model = KNeighborsRegressor(3).fit(x, x[:, 0])
    for example in (x[:7], (x[:7],), {"X": x[:7]}):
        assert edgekit.import_model(model, example_inputs=example).compared.samples == 7
    with pytest.raises(UsageError, match=r"^example_inputs are not rows of numbers: could not convert"):
        edgekit.import_model(model, example_inputs=[["a", "b"]])


def test_a_pipeline_that_takes_texts() -> None:
    vectorizer = type("TfidfVectorizer", (), {"__module__": "sklearn.feature_extraction.text"})()
    with pytest.raises(ModelError) as error:
        _export(SimpleNamespace(steps=[("words", vectorizer), ("linear", object())]), None)
    assert str(error.value) == (
        "SimpleNamespace begins with a TfidfVectorizer, which takes texts or dictionaries; EdgeKit builds "
        "models of numbers. Pass the steps behind it, edgekit.build(pipeline[1:], targets=[...]); run it in "
        "your app"
    )


def test_a_model_that_is_not_fitted() -> None:
    with pytest.raises(ModelError, match=r"^SimpleNamespace is not fitted: fit it first$"):
        _export(SimpleNamespace(steps=[("linear", object())]), None)
