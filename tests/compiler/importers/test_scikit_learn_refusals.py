"""Models of scikit-learn that have no number of features, without scikit-learn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgekit.compiler.importers.scikit_learn import _export
from edgekit.errors import ModelError


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
