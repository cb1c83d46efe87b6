"""Models of tables: scikit-learn, XGBoost, LightGBM and CatBoost, fitted to small data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from tests.benchmarks.newcomers.rows import Made, Row

TRUST = ("--trust-pickle",)
ROWS = 5
"""Rows of a table in a sample; each is a run of its own."""


def table(classes: int = 0, missing: bool = False) -> tuple[Array, Array]:
    """Return 400 rows of 6 numbers, float32, and their classes or values."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    value = x[:, 0] * 2 - x[:, 1] * x[:, 2] + np.sin(x[:, 3])
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    if not classes:
        return x, value.astype(np.float32)
    cuts = np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1])
    return x, np.searchsorted(cuts, value)


def fitted_row(
    name: str,
    estimator: Callable[[], Any],
    classes: int = 0,
    *,
    counts: bool = False,
    file: str = "",
    **rest: Any,
) -> Row:
    """Return a row of a scikit-learn estimator, or of its file; ``counts``: of values from 0."""

    def make(folder: Path) -> Made:
        import joblib

        x, y = table(classes)
        fitted = estimator().fit(x, np.abs(y) if counts else y)
        samples, answers = both(x, partial(outputs, fitted))
        if not file:
            return Made(fitted, samples, answers)
        joblib.dump(fitted, folder / file)
        return Made(folder / file, samples, answers)

    form = {"form": Path(file).suffix, "options": TRUST} if file else {"form": "Python"}
    return Row(name, "scikit-learn", make, **{**form, **rest})


def both(x: Array, compute: Callable[[Array], list[Array]]) -> tuple[list[list[Array]], list[list[Array]]]:
    """Return samples of one row each, and what the original answers to them."""
    samples = [[x[k : k + 1]] for k in range(ROWS)]
    return samples, [compute(sample[0]) for sample in samples]


def outputs(model: Any, x: Array) -> list[Array]:
    if not hasattr(model, "predict"):
        return [np.asarray(model.transform(x))]
    first = np.asarray(model.predict(x))
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            return [first, np.asarray(getattr(model, method)(x))]
    return [first]


def rows() -> Iterator[Row]:
    yield from scikit_learn_rows()
    yield from boosted_rows()


def scikit_learn_rows() -> Iterator[Row]:
    def logistic() -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=500)

    def in_sklearn(path: str, *arguments: Any, **settings: Any) -> Callable[[], Any]:
        module, _, name = path.rpartition(".")

        def make() -> Any:
            from importlib import import_module

            parts = [part() if callable(part) else part for part in arguments]
            return getattr(import_module(f"sklearn.{module}"), name)(*parts, **settings)

        return make

    def piped(*steps: Callable[[], Any]) -> Callable[[], Any]:
        return in_sklearn("pipeline.make_pipeline", *steps)

    tree = in_sklearn("tree.DecisionTreeClassifier", max_depth=4, random_state=0)
    yield fitted_row(
        "stacking of trees and logistic regression",
        lambda: in_sklearn("ensemble.StackingClassifier", [("tree", tree()), ("linear", logistic())])(),
        3,
        file="model.joblib",
    )
    yield fitted_row("bagging", in_sklearn("ensemble.BaggingClassifier", tree, 5, random_state=0), 3)
    yield fitted_row(
        "calibrated linear SVM",
        in_sklearn("calibration.CalibratedClassifierCV", in_sklearn("svm.LinearSVC"), cv=3),
        2,
    )
    yield fitted_row("one versus rest", in_sklearn("multiclass.OneVsRestClassifier", logistic), 3)
    yield fitted_row(
        "polynomial features, ridge",
        piped(in_sklearn("preprocessing.PolynomialFeatures", 2), in_sklearn("linear_model.Ridge")),
    )
    yield fitted_row(
        "quantile bins, logistic regression",
        piped(
            in_sklearn(
                "preprocessing.KBinsDiscretizer",
                5,
                encode="onehot-dense",
                quantile_method="averaged_inverted_cdf",
            ),
            logistic,
        ),
        2,
    )
    yield fitted_row("columns scaled differently", columns, 2, file="model.pkl")
    yield fitted_row("Huber regression", in_sklearn("linear_model.HuberRegressor"))
    yield fitted_row("Poisson regression", in_sklearn("linear_model.PoissonRegressor"), counts=True)
    yield fitted_row("partial least squares", in_sklearn("cross_decomposition.PLSRegression", 2))
    yield fitted_row("Gaussian mixture", in_sklearn("mixture.GaussianMixture", 3, random_state=0))
    yield fitted_row("local outlier factor", in_sklearn("neighbors.LocalOutlierFactor", novelty=True))
    yield fitted_row("one-class SVM", in_sklearn("svm.OneClassSVM"))
    yield fitted_row("Bernoulli naive Bayes", in_sklearn("naive_bayes.BernoulliNB"), 2)
    yield fitted_row("extra trees regressor", in_sklearn("ensemble.ExtraTreesRegressor", 20, random_state=0))
    yield fitted_row(
        "feature selection, perceptron network",
        piped(
            in_sklearn("feature_selection.SelectKBest", k=4),
            in_sklearn("neural_network.MLPClassifier", (16,), max_iter=300, random_state=0),
        ),
        3,
    )
    yield fitted_row(
        "grid search of random forests",
        lambda: in_sklearn(
            "model_selection.GridSearchCV",
            in_sklearn("ensemble.RandomForestClassifier", 20, random_state=0),
            {"max_depth": [3, 5]},
            cv=2,
        )(),
        3,
    )
    yield Row(
        "TF-IDF of texts, logistic regression",
        "scikit-learn",
        text_pipeline,
        ".joblib",
        TRUST,
        refused="edgekit.build(pipeline[1:]",
    )
    yield Row(
        "random forest, file without the option",
        "scikit-learn",
        fitted_row(
            "", in_sklearn("ensemble.RandomForestClassifier", 20, random_state=0), 3, file="model.joblib"
        ).make,
        ".joblib",
    )


def columns() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    scaled = ColumnTransformer(
        [("a", StandardScaler(), [0, 1, 2]), ("b", MinMaxScaler(), [3, 4])], remainder="passthrough"
    )
    return make_pipeline(scaled, LogisticRegression())


def text_pipeline(folder: Path) -> Made:
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["a good film", "a bad film", "good acting", "bad music", "very good", "very bad"] * 3
    joblib.dump(
        make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0] * 9), folder / "model.joblib"
    )
    return Made(folder / "model.joblib", (), ())


def boosted_rows() -> Iterator[Row]:
    def saved(
        name: str,
        framework: str,
        file: str,
        fit: Callable[[], Any],
        classes: int,
        save: Callable[[Any, str], Any],
        *,
        missing: bool = False,
        **rest: Any,
    ) -> Row:
        def make(folder: Path) -> Made:
            x, y = table(classes, missing)
            fitted = fit().fit(x, y)
            samples, answers = both(x, partial(outputs, fitted))
            if not file:
                return Made(fitted, samples, answers)
            save(fitted, str(folder / file))
            return Made(folder / file, samples, answers)

        return Row(name, framework, make, Path(file).suffix if file else "Python", **rest)

    def xgb(kind: str, **settings: Any) -> Callable[[], Any]:
        def make() -> Any:
            import xgboost

            return getattr(xgboost, f"XGB{kind}")(n_estimators=20, max_depth=4, n_jobs=1, **settings)

        return make

    def lgbm(kind: str, **settings: Any) -> Callable[[], Any]:
        def make() -> Any:
            import lightgbm

            settings_all = {"n_estimators": 20, "num_leaves": 8, "n_jobs": 1, "verbose": -1, **settings}
            return getattr(lightgbm, f"LGBM{kind}")(**settings_all)

        return make

    def cat(kind: str, **settings: Any) -> Callable[[], Any]:
        def make() -> Any:
            import catboost

            return getattr(catboost, f"CatBoost{kind}")(
                iterations=20, depth=4, verbose=False, allow_writing_files=False, thread_count=1, **settings
            )

        return make

    def save_model(model: Any, path: str) -> None:
        model.save_model(path)

    def save_booster(model: Any, path: str) -> None:
        model.booster_.save_model(path)

    xgboost, lightgbm, catboost = "XGBoost", "LightGBM", "CatBoost"
    yield saved("three classes", xgboost, "model.ubj", xgb("Classifier"), 3, save_model)
    yield saved(
        "regression with missing values", xgboost, "model.json", xgb("Regressor"), 0, save_model, missing=True
    )
    yield saved("DART", xgboost, "", xgb("Classifier", booster="dart", rate_drop=0.1), 2, save_model)
    yield saved(
        "linear booster",
        xgboost,
        "model.json",
        xgb("Regressor", booster="gblinear"),
        0,
        save_model,
        refused="gblinear",
    )
    yield saved("random forest", xgboost, "", xgb("RFRegressor"), 0, save_model)
    yield saved(
        "quantile regression",
        xgboost,
        "",
        xgb("Regressor", objective="reg:quantileerror", quantile_alpha=0.8),
        0,
        save_model,
    )
    yield saved("absolute error", xgboost, "", xgb("Regressor", objective="reg:absoluteerror"), 0, save_model)
    yield saved("two classes", lightgbm, "model.txt", lgbm("Classifier"), 2, save_booster)
    yield saved(
        "three classes, missing values",
        lightgbm,
        "model.txt",
        lgbm("Classifier"),
        3,
        save_booster,
        missing=True,
    )
    yield saved(
        "quantile regression",
        lightgbm,
        "",
        lgbm("Regressor", objective="quantile", alpha=0.8),
        0,
        save_booster,
    )
    yield saved("DART", lightgbm, "", lgbm("Regressor", boosting_type="dart"), 0, save_booster)
    yield saved(
        "random forest",
        lightgbm,
        "",
        lgbm("Classifier", boosting_type="rf", bagging_fraction=0.7, bagging_freq=1),
        2,
        save_booster,
    )
    yield saved("two classes", catboost, "model.cbm", cat("Classifier"), 2, save_model)
    yield saved("four classes", catboost, "", cat("Classifier", loss_function="MultiClass"), 4, save_model)
    yield saved("regression", catboost, "", cat("Regressor"), 0, save_model)
    yield Row("categorical features", catboost, categorical, ".cbm", refused="categorical")


def categorical(folder: Path) -> Made:
    import catboost

    rng = np.random.default_rng(0)
    colours, sizes = rng.choice(["red", "green", "blue"], 200), rng.normal(size=200)
    x = [[colour, size] for colour, size in zip(colours, sizes, strict=True)]
    model = catboost.CatBoostClassifier(iterations=10, depth=3, verbose=False, allow_writing_files=False)
    model.fit(x, (sizes > 0) ^ (colours == "red"), cat_features=[0])
    model.save_model(str(folder / "model.cbm"))
    return Made(folder / "model.cbm", (), ())
