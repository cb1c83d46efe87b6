"""Random ensembles of trees, built for three engines and compared with their library on every row.

    python tests/benchmarks/bench_tree_thresholds.py              200 ensembles, over the installed libraries
    python tests/benchmarks/bench_tree_thresholds.py --count 20 --seed 7

The rows are those of the table, its values' float32 neighbours, and the rows at the thresholds of the
converted model (edgekit/compiler/importers/threshold_rows.py): float32 below, at and above each. A row is
wrong if a score or value differs by more than 1e-4 of the greatest. A refusal is counted and printed; it is
not a silent loss.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import edgekit
from edgekit.compiler.importers.threshold_rows import threshold_rows
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.errors import EdgeKitError
from edgekit.runtime import Session
from tests.compiler.importers.random_ensembles import Ensemble, draw, installed

ENGINES = ["ort", "openvino", "tflite"]
TOLERANCE = 1e-4


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--count", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=None, help="of the first ensemble; default: the time")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    seed = int(time.time()) if given.seed is None else given.seed
    families = installed()
    print(f"seed {seed}; {', '.join(families)}")
    rows = variants = wrong = refused = rejected = 0
    for number in range(given.count):
        ensemble = draw(seed + number, families[number % len(families)])
        try:
            results = built(ensemble)
        except EdgeKitError as problem:
            refused += 1
            print(f"{seed + number} {ensemble.name}: refused: {str(problem)[:300]}")
            continue
        for variant, (status, count, errors) in results.items():
            if not status.startswith("verified"):
                rejected += 1
                print(f"{seed + number} {ensemble.name}: {variant}: {status[:200]}")
                continue
            variants += 1
            rows += count
            if errors:
                wrong += 1
                print(f"{seed + number} {ensemble.name}: {variant}: {errors} of {count} rows are wrong")
    print(
        f"{given.count} ensembles: {variants} verified variants, {rows} rows: {wrong} variants with a wrong "
        f"row, {rejected} rejected variants, {refused} ensembles refused"
    )
    sys.exit(bool(wrong))


def built(ensemble: Ensemble) -> dict[str, tuple[str, int, int]]:
    """Return status, rows and wrong rows of each variant."""
    model = ensemble.model
    imported = edgekit.import_model(model).imported
    extra = threshold_rows(open_bytes(imported.onnx, ensemble.name))
    rows, expected = ensemble.rows, ensemble.expected
    predict = getattr(model, "predict_proba", None) or model.predict
    for more in extra:
        more = more[np.random.default_rng(0).permutation(len(more))[:2000]]
        try:
            answers = np.asarray(predict(more), np.float64).reshape(len(more), -1)
        except ValueError:  # it takes no missing values
            continue
        rows, expected = np.concatenate([rows, more]), np.concatenate([expected, answers])
    name = str(open_bytes(imported.onnx, ensemble.name).graph.inputs[0].name)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trees.edgekit")
        bundle = edgekit.build(model, targets=ENGINES, shapes={name: rows.shape})
        bundle.save(path)
        for variant in bundle.variants:
            if not variant.status.startswith("verified"):
                results[variant.name] = (variant.status, 0, 0)
                continue
            with Session(path, variant=variant.name, strict=True) as session:
                outputs = list(session.run({name: rows}).values())
            found = outputs[-1] if hasattr(model, "predict_proba") else outputs[0]
            errors = np.abs(np.asarray(found, np.float64).reshape(expected.shape) - expected).max(1)
            scale = max(float(np.abs(expected).max()), 1e-30)
            results[variant.name] = (variant.status, len(rows), int((~(errors <= TOLERANCE * scale)).sum()))
    return results


if __name__ == "__main__":
    main()
