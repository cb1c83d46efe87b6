"""Small networks trained in PyTorch, Keras, JAX and scikit-learn, from their framework to three engines.

    python tests/benchmarks/bench_import_frameworks.py                       those that are installed
    python tests/benchmarks/bench_import_frameworks.py --environments DIR    all, in environments it makes
    python tests/benchmarks/bench_import_frameworks.py --save DIR            their exports and answers

Each is trained on scikit-learn's digits (1,797 pictures of 8 x 8, every fifth held out), built by
``edgekit.build`` from the object of its framework, and run by each engine on the held-out pictures. The
reference are the framework's own answers:

    import      how the ONNX model compares with the framework, as the build reports it
    agree       the part of the held-out pictures with the framework's class (regressors: within 1e-3)
    worst       greatest difference of a score or value, over the greatest of the framework's

An environment takes 0.4 to 1.2 GB and is made of pinned packages from the index that pip is set to; nothing
else is fetched.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.errors import EdgeKitError, reason_of
from edgekit.runtime import Session
from edgekit.tensor_spec import Array

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("ort", "tflite", "openvino")
OURS = (
    "onnx==1.23.2",
    "onnx-ir==1.1.0",
    "onnxruntime==1.31.1",
    "openvino==2026.4.1",
    "ai-edge-litert==2.3.0",
)
PINNED = {
    "torch": ("torch==2.13.0", "onnxscript==0.7.2", "scikit-learn==1.9.1"),
    "keras": ("keras==3.15.1", "jax==0.10.2", "jax2onnx==0.17.1", "flax==0.12.8", "scikit-learn==1.9.1"),
    "sklearn": ("scikit-learn==1.9.1", "skl2onnx==1.20.0"),
}
"""Environment -> its packages. PyTorch's package for CPUs is of the version that pip finds first."""
NEEDS = {"torch": "onnxscript", "keras": "jax2onnx", "jax": "jax2onnx", "sklearn": "skl2onnx"}
EPOCHS = 30
SMALL = ("logistic regression", "linear SVM", "kNN", "Gaussian naive Bayes", "decision tree", "ridge")
"""Of scikit-learn's, those whose exports are small enough to keep."""

Case = tuple[str, Any, Any, Callable[[Array], list[Array]], Array]
"""Name, model, example inputs, the framework's answers, held-out inputs."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--environments", type=Path, help="folder to make the environments in")
    arguments.add_argument("--save", type=Path, help="folder for small exports and the framework's answers")
    arguments.add_argument("--only", choices=tuple(CASES), action="append")
    given = arguments.parse_args()
    if given.environments:
        for name, packages in PINNED.items():
            python = _environment(given.environments / name, packages)
            subprocess.run([python, __file__, *(["--save", given.save] if given.save else [])], check=True)
        return
    for name in given.only or CASES:
        if find_spec(name) is None or find_spec(NEEDS[name]) is None:
            print(f"{name}: not run, {name} or {NEEDS[name]} is not installed")
            continue
        print(f"\n{name}")
        for case in CASES[name]():
            if given.save:
                _save(given.save, name, case)
            else:
                _measure(case)


def _environment(folder: Path, packages: tuple[str, ...]) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *packages, *OURS], check=True)
        subprocess.run([*pip, "-e", f"{ROOT}[build,tflite,openvino]"], check=True)
    return python


def _measure(case: Case) -> None:
    name, model, examples, answers, inputs = case
    want = answers(inputs)
    for engine in ENGINES:
        start = time.perf_counter()
        try:
            bundle = edgekit.build(model, targets=[engine], example_inputs=examples)
            seconds = time.perf_counter() - start
            text = _compared(bundle, engine, inputs, want)
        except EdgeKitError as problem:
            print(f"  {name:32} {engine:9} {reason_of(problem)[:150]}")
            continue
        imported = bundle.manifest["source"]["imported"]["compared"]
        worst = min(
            (e["snr_db"] for e in imported["outputs"].values() if e["snr_db"] is not None), default=None
        )
        exact = "exact" if worst is None else f"{worst:.0f} dB"
        print(f"  {name:32} {engine:9} import {exact:7} {text}  build {seconds:.1f} s", flush=True)


def _compared(bundle: edgekit.Bundle, engine: str, inputs: Array, want: list[Array]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.edgekit"
        bundle.save(path)
        with Session(path, engine=engine, strict=True) as session:
            (feed,) = bundle.golden[0][0]
            rows = [list(session.run({feed: x[None]}).values()) for x in inputs]
    got = [np.concatenate([np.reshape(row[k], (1, -1)) for row in rows]) for k in range(len(want))]
    pairs = [(w.reshape(len(inputs), -1), g) for w, g in zip(want, got, strict=True)]
    first, found = pairs[0]
    if first.shape[1] > 1:
        agree = np.mean(first.argmax(1) == found.argmax(1))
    elif first.dtype.kind in "iu":
        agree = np.mean(first == found)
    else:
        agree = np.mean(np.abs(first - found) <= 1e-3 * np.abs(first).max())
    worst = max(float(np.abs(w - g).max() / max(np.abs(w).max(), 1e-30)) for w, g in pairs)
    return f"agree {agree:7.2%}  worst {worst:.1e}"


def _save(folder: Path, framework: str, case: Case) -> None:
    name, model, examples, answers, inputs = case
    if framework == "sklearn" and name not in SMALL:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^a-z]+", "_", f"{framework} {name}".lower())
    imported = edgekit.import_model(model, example_inputs=examples)
    imported.save(folder / f"{stem}.onnx")
    few = inputs[:16]
    arrays = {spec.name: array for spec, array in zip(imported.outputs, answers(few), strict=True)}
    arrays[imported.inputs[0].name] = few
    np.savez_compressed(folder / f"{stem}.npz", **arrays)  # type: ignore[arg-type]
    print(f"  {stem}  {imported.compared}")


def _digits() -> tuple[Array, Array, Array, Array]:
    """Training pictures and classes, held-out ones; float32, 0 to 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    held_out = np.arange(len(x)) % 5 == 0
    return x[~held_out], y[~held_out], x[held_out], y[held_out]


def _torch_cases() -> Iterator[Case]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y, held_out, classes = _digits()
    pictures, labels = torch.from_numpy(x.reshape(-1, 1, 8, 8)), torch.from_numpy(y)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(pictures)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures[batch]), labels[batch]).backward()
            optimizer.step()
    model.eval()
    inputs = held_out.reshape(-1, 1, 8, 8)

    def answers(given: Array) -> list[Array]:
        with torch.no_grad():
            return [model(torch.from_numpy(given)).numpy()]

    _say_accuracy("CNN", answers(inputs)[0], classes)
    example = (torch.zeros(1, 1, 8, 8),)
    yield "CNN", model, example, answers, inputs
    yield "CNN, as an exported program", torch.export.export(model, example), None, answers, inputs


def _keras_cases() -> Iterator[Case]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    keras.utils.set_random_seed(0)
    x, y, held_out, classes = _digits()
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((8, 8, 1), name="picture"), layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.BatchNormalization(), layers.MaxPooling2D(), layers.DepthwiseConv2D(3, padding="same"),
        layers.Activation("hard_swish"), layers.Flatten(), layers.Dropout(0.2),
        layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy")
    model.fit(x.reshape(-1, 8, 8, 1), y, batch_size=64, epochs=EPOCHS, verbose=0)
    inputs = held_out.reshape(-1, 8, 8, 1)

    def answers(given: Array) -> list[Array]:
        return [np.asarray(model(given, training=False))]

    _say_accuracy("CNN", answers(inputs)[0], classes)
    yield "CNN", model, None, answers, inputs
    recurrent = keras.Sequential([keras.Input((8, 8), name="rows"), layers.LSTM(16), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    recurrent.compile(keras.optimizers.Adam(5e-3), loss)
    recurrent.fit(x.reshape(-1, 8, 8), y, batch_size=64, epochs=EPOCHS, verbose=0)
    rows = held_out.reshape(-1, 8, 8)

    def scores(given: Array) -> list[Array]:
        return [np.asarray(recurrent(given, training=False))]

    _say_accuracy("LSTM", scores(rows)[0], classes)
    yield "LSTM", recurrent, None, scores, rows


def _jax_cases() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    x, y, held_out, classes = _digits()
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = ((64, 48), (48, 10))
    weights = [
        (jax.random.normal(key, size) * size[0] ** -0.5, jnp.zeros(size[1]))
        for key, size in zip(keys, sizes, strict=False)
    ]

    def network(parameters: Any, features: Any) -> Any:
        (w, b), (v, c) = parameters
        return jax.nn.gelu(features @ w + b) @ v + c

    def step(parameters: Any, features: Any, labels: Any) -> Any:
        def loss(candidate: Any) -> Any:
            scores = jax.nn.log_softmax(network(candidate, features))
            return -scores[jnp.arange(len(labels)), labels].mean()

        return jax.tree.map(lambda p, g: p - 0.5 * g, parameters, jax.grad(loss)(parameters))

    step = jax.jit(step)
    rng = np.random.default_rng(0)
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(x)), len(x) // 64):
            weights = step(weights, x[batch], y[batch])

    def classify(features: Any) -> Any:
        return jax.nn.softmax(network(weights, features))

    def answers(given: Array) -> list[Array]:
        return [np.asarray(classify(given))]

    _say_accuracy("MLP", answers(held_out)[0], classes)
    example = (np.zeros((1, 64), np.float32),)
    yield "MLP, a function", classify, example, answers, held_out
    yield "MLP, jitted", jax.jit(classify), example, answers, held_out


def _sklearn_cases() -> Iterator[Case]:
    from sklearn import (
        cluster,
        decomposition,
        discriminant_analysis,
        ensemble,
        gaussian_process,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.datasets import load_diabetes

    x, y, held_out, classes = _digits()
    scaled = preprocessing.StandardScaler
    piped = pipeline.make_pipeline
    classifiers = {
        "logistic regression": linear_model.LogisticRegression(max_iter=300),
        "scaler, logistic regression": piped(scaled(), linear_model.LogisticRegression(max_iter=300)),
        "linear SVM": svm.LinearSVC(),
        "SGD, hinge": piped(scaled(), linear_model.SGDClassifier(random_state=0)),
        "ridge classifier": linear_model.RidgeClassifier(),
        "SVC, RBF": svm.SVC(),
        "SVC, linear": svm.SVC(kernel="linear"),
        "SVC with probabilities": svm.SVC(probability=True),
        "MLP": neural_network.MLPClassifier((32,), max_iter=300, random_state=0),
        "Gaussian naive Bayes": naive_bayes.GaussianNB(var_smoothing=1e-3),
        "multinomial naive Bayes": naive_bayes.MultinomialNB(),
        "LDA": discriminant_analysis.LinearDiscriminantAnalysis(),
        "QDA": discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
        "kNN": neighbors.KNeighborsClassifier(3),
        "decision tree": tree.DecisionTreeClassifier(max_depth=6, random_state=0),
        "random forest, 100": ensemble.RandomForestClassifier(100, random_state=0),
        "extra trees, 50": ensemble.ExtraTreesClassifier(50, random_state=0),
        "gradient boosting": ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
        "hist gradient boosting": ensemble.HistGradientBoostingClassifier(max_iter=20, random_state=0),
        "AdaBoost": ensemble.AdaBoostClassifier(n_estimators=20, random_state=0),
        "imputer, PCA, normalizer, logistic": piped(
            impute.SimpleImputer(), scaled(), decomposition.PCA(16), preprocessing.Normalizer(),
            linear_model.LogisticRegression(max_iter=300),
        ),
        "k-means": cluster.KMeans(10, n_init=1, random_state=0),
        "isolation forest": ensemble.IsolationForest(n_estimators=20, random_state=0),
    }  # fmt: skip
    for name, estimator in classifiers.items():
        yield _fitted(name, estimator, x, y, held_out, classes)
    table, target = load_diabetes(return_X_y=True)
    table, target = table.astype(np.float32), target.astype(np.float32)
    regressors = {
        "ridge": piped(scaled(), linear_model.Ridge()),
        "lasso": linear_model.Lasso(0.1),
        "SVR": svm.SVR(),
        "MLP regressor": piped(
            scaled(), neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, random_state=0)
        ),
        "kNN regressor": neighbors.KNeighborsRegressor(3),
        "random forest regressor": ensemble.RandomForestRegressor(20, random_state=0),
        "gradient boosting regressor": ensemble.GradientBoostingRegressor(random_state=0),
        "Gaussian process": gaussian_process.GaussianProcessRegressor(alpha=1.0),
    }
    part = np.arange(len(table)) % 5 == 0
    for name, estimator in regressors.items():
        yield _fitted(name, estimator, table[~part], target[~part], table[part], None)


def _fitted(name: str, estimator: Any, x: Array, y: Array, held_out: Array, classes: Array | None) -> Case:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)

    def answers(given: Array) -> list[Array]:
        first = np.asarray(estimator.predict(given))
        for method in ("predict_proba", "decision_function", "transform"):
            if hasattr(estimator, method):
                return [first, np.asarray(getattr(estimator, method)(given))]
        return [first]

    return name, estimator, None, answers, held_out


def _say_accuracy(name: str, scores: Array, classes: Array) -> None:
    print(f"  {name}: {np.mean(scores.argmax(1) == classes):.1%} of {len(classes)} held-out pictures right")


CASES = {"torch": _torch_cases, "keras": _keras_cases, "jax": _jax_cases, "sklearn": _sklearn_cases}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
