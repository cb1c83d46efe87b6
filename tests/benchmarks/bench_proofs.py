"""How often a build ships a detector's int8 variant that is below its limit, by simulation.

    python -m tests.benchmarks.bench_proofs [yolox_nano | coco_ssd_mbv2_300]...

Forms of ONNX Runtime's int8 are run once on 256 photographs. Between the float model's outputs and a form's
there are others of the same kind of noise, e.g. with half of it. A build's samples are drawn from the
photographs, BUILDS times for each number of samples, and split as a build does. "true" is the mean score on
128 photographs. The first table has how often the test samples meet the observed limit, and how often they
prove it. The second one simulates the search: of six forms, of which the faster ones have more noise, the
fastest that leaves the search's margin on the validation samples is tested, then perhaps the next one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.accuracy_limits import SEARCH_MARGIN
from edgekit.compiler.evaluate.average_precision import Ranked, rank_by_class
from edgekit.compiler.evaluate.fidelity import whole_input, with_score
from edgekit.compiler.evaluate.proof import MANY_SAMPLES, SPLIT_SAMPLES, TAIL, TEST_SHARE
from edgekit.compiler.evaluate.samples import read_files
from edgekit.compiler.evaluate.task_metric import TaskMetric, metric_of
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.search.measurement import QUICK, CandidateConfig
from edgekit.processing import load_card
from edgekit.processing.processing import decode
from edgekit.tensor_spec import Array
from tests.benchmarks.bench_int8 import pictures
from tests.benchmarks.bench_limits import run_forms
from tests.benchmarks.packaged_models import SHARED
from tests.benchmarks.real_inputs import CARDS

FORMS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "yolox_nano": {
        "all": (0.7, 0.5, 0.3),
        "no riders": (0.6, 0.4),
        "128 columns and riders": (0.85, 0.7, 0.5),
    },
    "coco_ssd_mbv2_300": {"all": (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3)},
}
"""Network -> placement -> shares of its noise."""
BUILDS, HALVES, SIZES = 40, 25, (32, 64, 128)


class Split(NamedTuple):
    """Photographs of simulated builds, 1 for each that is taken: int64 [builds, photographs].

    Attributes:
        halves: Random halves of the test samples: int64 [builds, HALVES, photographs].
    """

    validation: Array
    test: Array
    halves: Array


class Form(NamedTuple):
    """Form of a network, with its scores in the builds of each size: float64 [builds].

    Attributes:
        name: Placement and share of its noise.
        true: Mean score on MANY_SAMPLES photographs.
        validation: Number of samples -> scores on the validation samples.
        test: The same on the test samples.
        proved: The same: whether the test samples prove the score: bool [builds].
    """

    name: str
    true: float
    validation: Mapping[int, Array]
    test: Mapping[int, Array]
    proved: Mapping[int, Array]


def main() -> None:
    for name in sys.argv[1:] or FORMS:
        metric = metric_of("detect")
        assert metric is not None
        forms = sorted(forms_of(name, metric), key=lambda form: form.true)
        for form in forms:
            cells = [
                f"{n}: {np.mean(form.test[n] >= metric.minimum):.0%} / "
                f"{np.mean((form.test[n] >= metric.minimum) & form.proved[n]):.0%}"
                for n in SIZES
            ]
            print(f"{name:20}{form.name:46}{form.true:.3f}  meets the limit / is proved  {cells}", flush=True)
        for n in SIZES:
            for proves, tries in ((False, False), (True, False), (True, True)):
                print(f"{name:20}{n} samples: {simulate(metric, forms, n, proves, tries)}", flush=True)


def forms_of(name: str, metric: TaskMetric) -> Iterator[Form]:
    card = load_card(CARDS / f"{name}.toml")
    source = open_model(SHARED / "models" / f"{name}.onnx", card.shapes())
    data = SHARED / "data"
    train, val = (pictures(data / "coco128" / part / "images") for part in ("train", "val"))
    others = pictures(data / "imagenet500")
    others = [others[i] for i in np.random.default_rng(0).permutation(len(others))]
    with TemporaryDirectory() as folder:  # without labels beside them
        calibration, pool = (
            [Path(folder, path.name) for path in paths]
            for paths in ([*train[::2], *others[:64]], [*train[1::2], *val, *others[64:128]])
        )
        for path in [*train, *val, *others[:128]]:
            Path(folder, path.name).symlink_to(path.resolve())
        samples = read_files(pool, signature(source)[0], card).arrays
        reference = Reference(source, optimize=True)
        expected = [reference.run(sample) for sample in samples]
        whole = [decode(card, one, whole_input(card), **metric.variant_options) for one in expected]
        truth = [with_score(one, metric.reference_score) for one in whole]
        splits = {n: draw_builds(n, len(pool)) for n in SIZES}
        configs = [CandidateConfig(placement, QUICK) for placement in FORMS[name]]
        for config, results in run_forms(source, card, calibration, samples, configs):
            for noise in FORMS[name][config.placement]:
                outputs = [
                    {key: one[key] + np.float32(noise) * (other[key] - one[key]) for key in one}
                    for one, other in zip(expected, results, strict=True)
                ]
                decoded = [decode(card, one, whole_input(card), **metric.variant_options) for one in outputs]
                yield scored(f"{config.placement}, {noise:g} of its noise", metric, truth, decoded, splits)


def draw_builds(n: int, photographs: int) -> Split:
    """Draw the validation and test samples of builds with n samples."""
    rng, split = np.random.default_rng(n), min(n, SPLIT_SAMPLES)
    tested = (split + 1) // TEST_SHARE
    validated, tested = (split - tested) // 3, tested + n - split
    validation, test = np.zeros((2, BUILDS, photographs), np.int64)
    halves = np.zeros((BUILDS, HALVES, photographs), np.int64)
    for build in range(BUILDS):
        order = rng.permutation(photographs)
        validation[build, order[:validated]] = 1
        chosen = order[validated : validated + tested]
        test[build, chosen] = 1
        for half in range(HALVES):
            halves[build, half, chosen[rng.permutation(tested)[: (tested + 1) // 2]]] = 1
    return Split(validation, test, halves)


def scored(
    name: str, metric: TaskMetric, truth: Sequence[Any], decoded: Sequence[Any], splits: Mapping[int, Split]
) -> Form:
    """Score a form in all builds; boxes are matched once."""
    photographs = len(truth)
    ranked = [_up_to_the_last_match(one) for one in rank_by_class(truth, decoded).values()]

    def scores(weights: Array) -> Array:
        total, classes = np.zeros((2, len(weights)))
        for one in ranked:
            drawn = np.flatnonzero(weights @ one.present)
            classes[drawn] += 1
            if len(drawn) and len(one.pictures):
                total[drawn] += one.average_precisions(weights[drawn])
        return np.divide(total, classes, out=np.zeros(len(weights)), where=classes > 0)

    rng = np.random.default_rng(1)
    many = np.stack([rng.permutation(photographs) < MANY_SAMPLES for _ in range(30)]).astype(np.int64)
    objects = np.array([len(one.scores) for one in truth])
    validation, test, proved = dict[int, Array](), dict[int, Array](), dict[int, Array]()
    for n, split in splits.items():
        validation[n], test[n] = scores(split.validation), scores(split.test)
        halves = scores(split.halves.reshape(-1, photographs)).reshape(BUILDS, HALVES)
        count = int(split.test[0].sum())
        flattery = metric.halving_gain * max(math.log2(MANY_SAMPLES / count), 0)
        low = 2 * test[n] - np.quantile(halves, 1 - TAIL, axis=1) - flattery
        enough = (count >= metric.samples) & (split.test @ objects >= metric.objects)
        proved[n] = enough & (low >= metric.low)
    return Form(name, float(scores(many).mean()), validation, test, proved)


def _up_to_the_last_match(one: Ranked) -> Ranked:
    """Leave out what an average precision does not depend on."""
    end = int(np.flatnonzero(one.matched[0]).max(initial=-1)) + 1
    return Ranked(one.pictures[:end], one.matched[:, :end], one.counted[:, :end], one.present)


def simulate(metric: TaskMetric, forms: Sequence[Form], n: int, proves: bool, tries: bool) -> str:
    """Simulate builds; return how often they ship a form, and one that is below ``metric.low``.

    Args:
        proves: Whether a variant whose lower end is too low is shipped with a note.
        tries: Whether such a variant gives way to the next one, if that is proved.
    """
    rng, enough = np.random.default_rng(0), 1 - (1 - metric.minimum) * (1 - SEARCH_MARGIN)
    shipped, silent, times = list[float](), list[float](), list[float]()
    for build in np.tile(np.arange(BUILDS), 15):
        chosen = [forms[i] for i in sorted(rng.permutation(len(forms))[:6])]
        good = [form for form in chosen if form.validation[n][build] >= enough]
        good = good or [form for form in chosen if form.validation[n][build] >= metric.minimum]
        tested = [form for form in good[:2] if form.test[n][build] >= metric.minimum]
        proved = [form for form in tested if not proves or form.proved[n][build]]
        if not tested:
            continue
        form = (proved or tested)[0] if tries or tested[0] is not good[0] else tested[0]
        shipped.append(form.true)
        times.append(0.6 + 0.05 * chosen.index(form))
        silent += [form.true] if form in proved else []
    rule = "the observed score alone" if not proves else "a proof, and the next form" if tries else "a proof"
    builds = 15 * BUILDS
    return (
        f"{rule}: {len(shipped) / builds:.0%} ship, {len(silent) / builds:.0%} without a note; below "
        f"{metric.low:.2f}: {sum(true < metric.low for true in shipped) / builds:.1%}, without a note "
        f"{sum(true < metric.low for true in silent) / builds:.1%}; time {np.mean(times):.3f}"
    )


if __name__ == "__main__":
    main()
