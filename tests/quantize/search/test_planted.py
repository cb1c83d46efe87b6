"""What int8 can not hold is found and kept in float: 95 % of the loss is back, for a tenth of the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from edgekit.evaluate.samples import load_samples
from edgekit.evaluate.timing import OWN_TIME, turns
from edgekit.evaluate.verify import ReferenceOutputs, write_files
from edgekit.model.onnx_file import open_model, signature
from edgekit.passes import run_passes
from edgekit.pipeline.quantization_data import QuantizationData, collect_quantization_data
from edgekit.quantize.observe.calibrate import split
from edgekit.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.quantize.search.strategy import search_fastest
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.quantize.search import planted

ROUNDS = 20
"""At most so many rounds of timing, on a machine that does other things as well."""


def ground_of(path: Path) -> QuantizationData:
    source = open_model(path)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    samples = load_samples(planted.samples(12), inputs)
    return collect_quantization_data(
        source, canonical, ReferenceOutputs(inputs, outputs, ()), samples, split(samples.arrays), None
    )


def time_ratio(
    ground: QuantizationData, one: CompiledCandidate, other: CompiledCandidate, folder: Path
) -> float:
    """Time of the one over the other's, in the process's own: minima of interleaved runs on one thread."""
    context = ground.search_context
    best = [math.inf, math.inf]
    with ExitStack() as stack:
        runners = []
        for number, made in enumerate((one, other)):
            (folder / str(number)).mkdir()
            files = write_files(made.artifact, folder / str(number))
            engine = registry.engine("ort")
            runner = engine.open_runner(files, context.inputs, context.outputs, made.artifact.options, 1)
            runners.append(stack.enter_context(closing(runner)))
        for _ in range(ROUNDS):
            times = turns(runners, context.validation[0], OWN_TIME)
            best = [min(so_far, *own) for so_far, own in zip(best, times, strict=True)]
            if best[0] <= 1.1 * best[1]:
                break
    return best[0] / best[1]


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("make", "names"),
    [(planted.fragile_layer, {"fragile"}), (planted.outlier_channel, {"wide", "narrow"})],
)
def test_what_is_planted_is_found(make: Callable[[Path], Path], names: set[str], tmp_path: Path) -> None:
    ground = ground_of(make(tmp_path))
    target = resolve(find_profile("ort"))
    assert target.rules is not None
    parent = target.compiler.compile_model(ground.search_context.model, target.profile, "fp32")
    planted_nodes = names | {f"{name}.relu" for name in names}
    with Candidates(ground.search_context, target, target.rules, parent, "test") as candidates:
        tried = search_fastest(
            ["all"],
            candidates.measure,
            lambda config, least: candidates.find_float_regions(config, lambda: True, least)[0],
            lambda each: each.config.floats == planted_nodes,
            lambda config, share: True,
        )
        found = next(each for each in tried if each.config.floats == planted_nodes)
        noise = [10 ** (-t.rank / 10) for t in (tried[0], found)]
        assert noise[1] <= 0.05 * noise[0]
        plain, mixed = candidates.compile(tried[0].config), candidates.compile(found.config)
        assert set(mixed.floats) == names
        assert time_ratio(ground, mixed, plain, tmp_path) <= 1.1
