"""How often a form of known quality meets the default accuracy limits with few test samples.

    python tests/benchmarks/bench_limits.py [DRAWS]

Forms of YOLOX-nano and EfficientNet-Lite0 in int8 are run once on all photographs, as Q/DQ graphs by ONNX
Runtime. Sets of test samples are drawn from these results with replacement, and judged as a build does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.average_precision import RESAMPLES, Ranked, mean_of_classes, rank_by_class
from edgekit.compiler.evaluate.fidelity import Fidelity, Score, whole_input
from edgekit.compiler.evaluate.proof import TAIL, Proof, count_changes, lowest_score
from edgekit.compiler.evaluate.samples import read_files
from edgekit.compiler.evaluate.task_metric import TaskMetric, metric_of
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.search.search_context import run_qdq_graph
from edgekit.processing import load_card
from edgekit.processing.card import Card
from edgekit.processing.processing import decode
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.benchmarks.bench_int8 import calibrated, pictures
from tests.benchmarks.packaged_models import SHARED
from tests.benchmarks.real_inputs import CARDS

SIZES = (16, 32, 64, 128)
PHOTOGRAPHS, CALIBRATION = SHARED / "data", SHARED / "data" / "coco128" / "train" / "images"
NEAREST = Recipe("minmax", "nearest", bias_correction=False)
MODELS: Mapping[str, tuple[str, Path, Sequence[CandidateConfig]]] = {
    "YOLOX-nano": (
        "yolox_nano",
        PHOTOGRAPHS / "coco128" / "val" / "images",
        [CandidateConfig(name) for name in ("all", "64 columns", "128 columns and riders", "256 columns")],
    ),
    "EfficientNet-Lite0": (
        "efficientnet_lite0",
        PHOTOGRAPHS / "imagenet500",
        [CandidateConfig("all"), CandidateConfig("all", NEAREST), CandidateConfig("64 columns")],
    ),
}


def main() -> None:
    draws = int(sys.argv[1]) if sys.argv[1:] else 100
    sizes = "".join(f"{size:>14}" for size in SIZES)
    print(f"shipped / and proved, of {draws} sets of test samples\n{'form':52}{'score':>8}{sizes}")
    for name, (file, truth, configs) in MODELS.items():
        card = load_card(CARDS / f"{file}.toml")
        source = open_model(SHARED / "models" / f"{file}.onnx", card.shapes())
        canonical = source.clone()
        run_passes(canonical)
        ground = calibrated(source, canonical, card, pictures(CALIBRATION), 128, 0)
        samples = read_files(pictures(truth), signature(source)[0], card).arrays
        reference = Reference(source, optimize=True)
        expected = [reference.run(sample) for sample in samples]
        target = resolve(find_profile("ort"))
        assert target.rules is not None
        with Candidates(ground.search_context, target, target.rules, None, "") as candidates:
            for config in configs:
                results = run_qdq_graph(candidates.compile(config).model, samples)
                show(f"{name}: {config}", card, expected, results, draws)


def show(name: str, card: Card, expected: Sequence[Any], results: Sequence[Any], draws: int) -> None:
    assert card.task is not None
    metric = metric_of(card.task.kind)
    assert metric is not None
    decoded = [
        [decode(card, one, whole_input(card), **options) for one in outputs]
        for outputs, options in (
            (expected, metric.reference_options),
            (results, metric.variant_options),
            (expected, metric.counted_options),
        )
    ]
    ranked = rank_by_class(decoded[0], decoded[1]) if metric.objects else {}
    rng, cells = np.random.default_rng(0), []
    for size in SIZES:
        verdicts = []
        for _ in range(draws):
            chosen = rng.integers(len(expected), size=size)
            scores = scores_of(metric, ranked, chosen) if ranked else None
            groups = ([group[index] for index in chosen] for group in decoded)
            verdicts.append(verdict(metric, *groups, scores))
        shipped, proved = np.mean(verdicts, axis=0)
        cells.append(f"{shipped:.0%} / {proved:.0%}".rjust(14))
    print(f"{name:52}{metric.compare(decoded[0], decoded[1]):8.3f}{''.join(cells)}", flush=True)


def scores_of(metric: TaskMetric, ranked: Mapping[int, Ranked], chosen: Array) -> tuple[float | None, float]:
    """Return the self-mAP of a set of photographs and its lower end, as ``verdict`` computes them; boxes are
    matched once for all sets."""
    count = len(next(iter(ranked.values())).present)
    draws = np.random.default_rng(0).integers(len(chosen), size=(RESAMPLES, len(chosen)))
    weights = np.stack([np.bincount(chosen[draw], minlength=count) for draw in draws])
    values = sum(one.average_precisions(weights) for one in ranked.values())
    classes = sum((weights @ one.present > 0).astype(int) for one in ranked.values())
    low = float(np.quantile(values / np.maximum(classes, 1), TAIL))
    return mean_of_classes(ranked, np.bincount(chosen, minlength=count)), low


def verdict(
    metric: TaskMetric,
    reference: Sequence[Any],
    predictions: Sequence[Any],
    counted: Sequence[Any],
    scores: tuple[float | None, float] | None = None,
) -> tuple[bool, bool]:
    """Return whether a build ships the form, and whether the samples prove that it meets the limits too."""
    score = metric.compare(reference, predictions) if scores is None else scores[0]
    if score is None:
        return False, False
    low = lowest_score(metric, reference, predictions) if scores is None else scores[1]
    objects = sum(len(one.scores) for one in reference) if metric.objects else 0
    fidelity = Fidelity(
        Score(metric.name, score),
        0.0,
        kept=None if metric.count_kept is None else metric.count_kept(counted, predictions),
        changes=count_changes(metric, reference, predictions),
        proof=Proof(len(reference), objects, low),
    )
    shipped = not Goal().missed(fidelity)
    return shipped, shipped and not Goal().not_proved(fidelity)


if __name__ == "__main__":
    main()
