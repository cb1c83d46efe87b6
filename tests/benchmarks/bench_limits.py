"""How often a form of known quality meets the default accuracy limits with few test samples.

    python -m tests.benchmarks.bench_limits draws               # EfficientNet-Lite0; detectors: bench_proofs
    python -m tests.benchmarks.bench_limits tasks [NETWORK...]    # some of the scoreboard

Forms in int8 are run once on all samples, as Q/DQ graphs by ONNX Runtime. ``draws``: sets of test samples are
drawn from these results with replacement, and judged as a build does. ``tasks``: a good form and a poor one
are judged on the scoreboard's held-out samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score, source_evaluator, whole_input, with_score
from edgekit.compiler.evaluate.proof import Proof, count_changes, lowest_score
from edgekit.compiler.evaluate.samples import Sample, read_files
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
from edgekit.system.cache_folder import cache_folder
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.benchmarks.bench_int8 import calibrated, pictures
from tests.benchmarks.packaged_models import SHARED
from tests.benchmarks.real_inputs import CARDS
from tests.benchmarks.scoreboard.networks import NETWORKS, prepare
from tests.benchmarks.task_heads import with_head

SIZES, DRAWS, MOST_SAMPLES = (16, 32, 64, 128), 40, 256
WITH_WEIGHTS = ("Conv", "ConvTranspose", "Gemm", "LSTM", "MatMul")


class Case(NamedTuple):
    """Network of the scoreboard that a task's limit is tried on.

    Attributes:
        head: Key of HEADS in ``task_heads.py``, if it is given another task.
        has_task: Whether it is judged with its card.
    """

    network: str
    head: str = ""
    has_task: bool = True


CASES = (
    Case("keywords"), Case("silero-vad"), Case("BlazeFace-short"), Case("CenterFace", "obb"),
    Case("CenterFace", "pose"), Case("CenterFace", "segment-instances"), Case("selfie-segmentation"),
    Case("PP-OCRv4-detector"),
    Case("face-landmarks"), Case("MiniLM-L3"), Case("selfie-segmentation", "matting"),
    Case("PP-OCRv4-reader"), Case("keywords", has_task=False),
)  # fmt: skip
PHOTOGRAPHS, CALIBRATION = SHARED / "data", SHARED / "data" / "coco128" / "train" / "images"
NEAREST = Recipe("minmax", "nearest", bias_correction=False)
FORMS = (CandidateConfig("all"), CandidateConfig("all", NEAREST))
MODELS: Mapping[str, tuple[str, Path, Sequence[CandidateConfig]]] = {
    "EfficientNet-Lite0": (
        "efficientnet_lite0",
        PHOTOGRAPHS / "imagenet500",
        [*FORMS, CandidateConfig("64 columns")],
    ),
}


def main() -> None:
    mode, names = "".join(sys.argv[1:2]), sys.argv[2:]
    if mode == "draws":
        sizes = "".join(f"{size:>14}" for size in SIZES)
        print(
            f"shipped / and proved, of {DRAWS} sets of test samples\n{'form':52}{'score':>8}{sizes}",
            flush=True,
        )
        for name in names or MODELS:
            show_draws(name)
    elif mode == "tasks":
        for case in CASES:
            if not names or case.network in names or case.head in names:
                show_verdicts(case)
    else:
        sys.exit(__doc__)


def show_draws(name: str) -> None:
    file, truth, configs = MODELS[name]
    card = load_card(CARDS / f"{file}.toml")
    source = open_model(SHARED / "models" / f"{file}.onnx", card.shapes())
    samples = read_files(pictures(truth)[:MOST_SAMPLES], signature(source)[0], card).arrays
    reference = Reference(source, optimize=True)
    expected = [reference.run(sample) for sample in samples]
    for config, results in run_forms(source, card, pictures(CALIBRATION), samples, configs):
        show(f"{name}: {config}", card, expected, results)


def show_verdicts(case: Case) -> None:
    """Print a network's int8, and its weights in fewer and fewer bits until a form is refused."""
    network = NETWORKS[case.network]
    folder = cache_folder() / "scoreboard" / "networks" / network.name
    prepare(network, folder)
    place = with_head(case.head, folder) if case.head else folder
    card = load_card(place / "card.toml")
    source = open_model(place / "source.onnx", card.shapes())
    calibration, held_out = (sorted((folder / part).glob("*.npz")) for part in ("calibration", "heldout"))
    samples = read_files(held_out, signature(source)[0], card).arrays
    judge = source_evaluator(source, card if case.has_task else None, samples)
    int8 = () if case.head else run_forms(source, card, calibration, samples, FORMS[:1])
    for form, results in chain(int8, run_rounded(source, samples)):
        fidelity = judge.evaluate(results, prove=True)
        low = "" if fidelity.proof is None else f"{fidelity.proof.low:.3f}"
        missed = Goal().missed(fidelity)
        verdict = missed or Goal().not_proved(fidelity) or "passes"
        kind = card.task.kind if case.has_task and card.task is not None else "no task"
        score = f"{fidelity.score.value:8.3f}{low:>7}"
        print(f"{kind:19}{network.name:21}{form!s:22}{score}  {verdict}", flush=True)
        if missed and isinstance(form, str):
            return


def run_rounded(
    source: ir.Model, samples: Sequence[Sample]
) -> Iterator[tuple[str, Sequence[Mapping[str, Array]]]]:
    """Yield the float model's outputs with weights in fewer and fewer bits, rounded to nearest: with a scale
    for each output channel of a Conv, or for each other weight."""
    canonical = source.clone()
    run_passes(canonical)
    for bits in (12, 10, 8, 7, 6, 5, 4, 3, 2):
        model = canonical.clone()
        for node in model.graph.all_nodes():
            weight = node.inputs[1] if node.op_type in WITH_WEIGHTS else None
            if weight is not None and weight.const_value is not None:
                values = weight.const_value.numpy()
                axes = tuple(range(node.op_type == "Conv", values.ndim))
                step = np.maximum(np.abs(values).max(axes, keepdims=True), 1e-12) / (2 ** (bits - 1) - 1)
                weight.const_value = ir.tensor((np.rint(values / step) * step).astype(values.dtype))
        reference = Reference(model, optimize=True)
        yield f"{bits} bits", [reference.run(sample) for sample in samples]


def run_forms(
    source: ir.Model,
    card: Card,
    calibration: Sequence[Path],
    samples: Sequence[Sample],
    configs: Sequence[CandidateConfig],
) -> Iterator[tuple[CandidateConfig, Sequence[Mapping[str, Array]]]]:
    """Yield each form for ONNX Runtime with its outputs."""
    canonical = source.clone()
    run_passes(canonical)
    ground = calibrated(source, canonical, card, calibration, 128, 0)
    target = resolve(find_profile("ort"))
    assert target.rules is not None
    with Candidates(ground.search_context, target, target.rules, None, "") as candidates:
        for config in configs:
            yield config, run_qdq_graph(candidates.compile(config).model, samples)


def show(name: str, card: Card, expected: Sequence[Any], results: Sequence[Any]) -> None:
    assert card.task is not None
    metric = metric_of(card.task.kind)
    assert metric is not None
    decoded = [
        [decode(card, one, whole_input(card), **options) for one in outputs]
        for outputs, options in (
            (expected, metric.variant_options if metric.reference_score else metric.reference_options),
            (results, metric.variant_options),
            (expected, metric.counted_options),
        )
    ]
    if metric.reference_score:
        decoded[0] = [with_score(one, metric.reference_score) for one in decoded[0]]
    rng, cells = np.random.default_rng(0), []
    for size in SIZES:
        verdicts = []
        for _ in range(DRAWS):
            chosen = rng.integers(len(expected), size=size)
            reference, predictions, counted = ([group[index] for index in chosen] for group in decoded)
            verdicts.append(verdict(metric, reference, predictions, counted))
        shipped, proved = np.mean(verdicts, axis=0)
        cells.append(f"{shipped:.0%} / {proved:.0%}".rjust(14))
    print(f"{name:52}{metric.compare(decoded[0], decoded[1]):8.3f}{''.join(cells)}", flush=True)


def verdict(
    metric: TaskMetric,
    reference: Sequence[Any],
    predictions: Sequence[Any],
    counted: Sequence[Any],
) -> tuple[bool, bool]:
    """Return whether a build ships the form, and whether the samples prove that it meets the limits too."""
    score = metric.compare(reference, predictions)
    if score is None:
        return False, False
    low = lowest_score(metric, reference, predictions)
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
