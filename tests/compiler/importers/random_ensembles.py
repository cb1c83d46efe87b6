"""Random ensembles of trees of every library that is installed, on columns whose values are hard to split."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from edgekit.tensor_spec import Array


class Ensemble(NamedTuple):
    """Fitted model.

    Attributes:
        name: Class, and what its columns are.
        model: The estimator.
        rows: float32[rows, columns]: the table, and its values' float32 neighbours.
        expected: Outputs of the library: scores or values, float64[rows, outputs].
    """

    name: str
    model: Any
    rows: Array
    expected: Array


def columns_of(rng: np.random.Generator, count: int, categories: bool) -> tuple[dict[str, Array], list[int]]:
    """Return columns by kind, float64[count] each, and the positions of categories."""
    hours = np.arange(count)
    kinds: dict[str, Callable[[], Array]] = {
        "sine": lambda: np.sin(2 * np.pi * hours / rng.choice([24, 12, 168, 7])),
        "cosine": lambda: np.cos(2 * np.pi * hours / rng.choice([24, 12, 168, 7])),
        "integers": lambda: rng.integers(-20, 20, count).astype(float),
        "tenths": lambda: rng.integers(-50, 50, count) / 10,
        "thirds": lambda: rng.integers(0, 30, count) / 3,
        "tiny": lambda: rng.normal(size=count) * 10.0 ** rng.integers(-30, -10),
        "huge": lambda: rng.normal(size=count) * 10.0 ** rng.integers(10, 30),
        "large integers": lambda: rng.integers(2**24, 2**26, count).astype(float),
        "zeros": lambda: np.where(rng.random(count) < 0.5, 0.0, rng.normal(size=count)),
        "normal": lambda: rng.normal(size=count),
    }
    chosen = rng.choice(list(kinds), rng.integers(2, 6), replace=False)
    columns = {str(kind): kinds[kind]() for kind in chosen}
    if categories:
        columns["categories"] = rng.integers(0, 8, count).astype(float)
    return columns, [len(columns) - 1] if categories else []


def installed() -> list[str]:
    """Return the families of ensembles that can be drawn here."""
    families = []
    if find_spec("sklearn") and find_spec("skl2onnx"):
        families += ["tree", "forest", "extra trees", "boosting", "histograms", "isolation"]
        if find_spec("onnxmltools"):
            families += [name for name in ("lightgbm", "xgboost") if find_spec(name)]
    return families + (["catboost"] if find_spec("catboost") else [])


def draw(seed: int, family: str) -> Ensemble:
    """Fit an ensemble; the same arguments give the same one."""
    rng = np.random.default_rng([seed, sum(family.encode())])
    takes_missing = family not in ("boosting", "isolation") and rng.random() < 0.4
    categories = family in ("lightgbm", "xgboost") and rng.random() < 0.4
    columns, categorical = columns_of(rng, 240, categories)
    x = np.stack(list(columns.values()), 1)
    clean = x / np.maximum(np.abs(x).max(0), 1e-300)
    y = clean @ rng.normal(size=x.shape[1]) * 3 + (clean[:, 0] > 0.5) - 2 * (clean[:, -1] > 0.2)
    if takes_missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    classes = int(rng.choice([0, 0, 2, 3]))
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    model = _fitted(family, rng, x, y, classes, categorical)
    rows = _rows(rng, x.astype(np.float32), categorical)
    predict = getattr(model, "predict_proba", None) or model.predict
    expected = np.asarray(predict(rows), np.float64).reshape(len(rows), -1)
    kinds = ", ".join([*columns, *(["missing values"] if takes_missing else [])])
    return Ensemble(f"{type(model).__name__} on {kinds}", model, rows, expected)


def _rows(rng: np.random.Generator, x: Array, categorical: list[int]) -> Array:
    """Return the table, and rows of its values' neighbours and of values half way between two of them."""
    near = np.stack([rng.permutation(column) for column in x.T], 1)
    direction = rng.choice(np.array([-np.inf, np.inf], np.float32), near.shape)
    between = (near + np.stack([rng.permutation(column) for column in x.T], 1)) / 2
    shifted = [np.nextafter(near, direction), between, np.nextafter(between, direction)]
    for array in shifted:
        array[:, categorical] = near[:, categorical]
    return np.concatenate([x, *shifted]).astype(np.float32)


def _fitted(
    family: str, rng: np.random.Generator, x: Array, y: Array, classes: int, categorical: list[int]
) -> Any:
    count, seed = int(rng.integers(1, 12)), int(rng.integers(1000))
    kind = "Classifier" if classes else "Regressor"
    more: dict[str, Any] = {}
    if family == "lightgbm":
        import lightgbm

        chosen = rng.choice(["gbdt", "dart", "rf"])
        more = {"bagging_freq": 1, "bagging_fraction": 0.7} if chosen == "rf" else {}
        model = getattr(lightgbm, f"LGBM{kind}")(
            n_estimators=count, min_child_samples=3, verbose=-1, boosting_type=chosen, random_state=seed,
            zero_as_missing=bool(rng.random() < 0.3), **more,
        )  # fmt: skip
        return model.fit(x, y, categorical_feature=categorical or "auto")
    if family == "xgboost":
        import xgboost

        types = ["c" if number in categorical else "q" for number in range(x.shape[1])]
        chosen = rng.choice(["gbtree", "dart"])
        if categorical:
            more = {"feature_types": types, "enable_categorical": True, "max_cat_to_onehot": 2}
        return getattr(xgboost, f"XGB{kind}")(
            n_estimators=count, max_depth=5, booster=chosen, random_state=seed,
            **more,
        ).fit(x, y)  # fmt: skip
    if family == "catboost":
        import catboost

        return getattr(catboost, f"CatBoost{kind}")(
            iterations=count, depth=4, verbose=0, allow_writing_files=False, random_seed=seed
        ).fit(x.astype(np.float32), y)
    from sklearn import ensemble, tree

    if family == "isolation":
        return ensemble.IsolationForest(n_estimators=count, random_state=seed).fit(x.astype(np.float32))
    cls = {
        "tree": f"DecisionTree{kind}", "forest": f"RandomForest{kind}", "extra trees": f"ExtraTrees{kind}",
        "boosting": f"GradientBoosting{kind}", "histograms": f"HistGradientBoosting{kind}",
    }[family]  # fmt: skip
    more = {"tree": {}, "histograms": {"max_iter": count, "min_samples_leaf": 3}}.get(
        family, {"n_estimators": count}
    )
    if family != "tree" and family != "histograms":
        more["max_depth"] = 6
    return getattr(tree if family == "tree" else ensemble, cls)(random_state=seed, **more).fit(x, y)
