"""``--runtime 'onnxruntime>=1.17'``: also run variants on the oldest release of their engine on devices.

The target's own runner opens and runs them there, in the release's environment
(edgekit/compiler/toolchains/engine_releases.py). A variant is rejected if it does not run, or is not as close
to the source model as its precision asks.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.accuracy_elsewhere import limit_elsewhere_db, lowest_snr_db
from edgekit.compiler.evaluate.verify import ReferenceOutputs, run_artifact
from edgekit.compiler.toolchains.child import ToolchainChild
from edgekit.compiler.toolchains.engine_releases import (
    RELEASE_CHILD,
    engine_packages,
    parse_requirement,
    release_toolchain,
)
from edgekit.compiler.toolchains.environment import Environment, require
from edgekit.errors import EdgeKitError, EngineError, UsageError, text_for_bundles
from edgekit.system.progress import Progress, stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import EngineInfo
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, Json, TensorSpec

OPEN_SECONDS, RUN_SECONDS = 600.0, 600.0


def older_releases(requirements: Sequence[str], targets: Sequence[BuildTarget]) -> dict[str, OlderRelease]:
    """Return the release to run each target's variants on, by the target's name.

    Args:
        requirements: ``PACKAGE>=VERSION`` each, of different targets.
        targets: The targets of the build.

    Raises:
        UsageError: a requirement has another form, or is of an engine that the build does not use.
        MissingDependency: a release is not installed; the text has the command that does it.
    """
    releases: dict[str, OlderRelease] = {}
    for text in requirements:
        package, version = parse_requirement(text)
        name = engine_packages()[package]
        target = next((target for target in targets if target.name == name), None)
        if target is None:
            raise UsageError(f"--runtime {text}: no target of this build runs on it; add -t {name}")
        if name in releases:
            raise UsageError(f"--runtime {text}: {name} has another one already; give the oldest alone")
        toolchain = release_toolchain(f"{package}=={version}")
        releases[name] = OlderRelease(target, require(toolchain, f"running variants on {package} {version}"))
    return releases


def run_on_older(
    variants: Sequence[VariantBuild],
    releases: Mapping[str, OlderRelease],
    reference: ReferenceOutputs,
    progress: Progress,
) -> None:
    """Run the variants that were verified on the older releases too, and reject those that fail there.
    Smaller models are not run: the reference is the source model's.

    Args:
        variants: All variants, rejected ones too.
        releases: Result of :func:`older_releases`.
        reference: The samples and the source model's outputs.
        progress: Called as the stage begins and ends.
    """
    with stage(progress, "older", live=True) as notify:
        by_file: dict[tuple[str, str], tuple[float, float] | EdgeKitError] = {}
        for variant in variants:
            release = releases.get(variant.target.name)
            if release is None or not variant.ran or variant.shrunk is not None:
                continue
            notify(f"{variant.name} on {release.engine_version()}")
            key = (variant.target.name, variant.digest)
            if key not in by_file:
                by_file[key] = _snrs_db(variant, release, reference)
            judge(variant, release.engine_version(), by_file[key], reference)
        notify(", ".join(release.engine_version() for release in releases.values()))


def _snrs_db(
    variant: VariantBuild, release: OlderRelease, reference: ReferenceOutputs
) -> tuple[float, float] | EdgeKitError:
    """Return a variant's SNR on the older release and on the installed one, or the error of a run."""
    try:
        older = run_artifact(variant.artifact, release, reference, {})
        installed = run_artifact(variant.artifact, variant.target.executor(), reference, {})
    except EdgeKitError as problem:
        return problem
    return lowest_snr_db(reference, older.outputs), lowest_snr_db(reference, installed.outputs)


def judge(
    variant: VariantBuild,
    engine: str,
    outcome: tuple[float, float] | EdgeKitError,
    reference: ReferenceOutputs,
) -> None:
    """Reject a variant that fails on the older release, or write what it reached there into its evidence."""
    if isinstance(outcome, EdgeKitError):
        variant.reject(text_for_bundles(outcome))
        return
    older_db, installed_db = outcome
    if older_db < limit_elsewhere_db(reference, precision_of(variant.precision).name, installed_db):
        variant.reject(f"{_shown(older_db)} on {engine}, but {_shown(installed_db)} on the installed release")
        return
    variant.evidence["older"] = {"engine": engine, "snr_db": older_db if older_db < math.inf else None}
    variant.reason += f" and {engine}"


def _shown(snr_db: float) -> str:
    if math.isfinite(snr_db):
        return f"SNR {snr_db:.1f} dB"
    return "exact" if snr_db > 0 else "other shapes, or values that are not finite,"


class OlderRelease:
    """The engine of a target in another release, as :class:`edgekit.target.contract.Engine` describes it.

    Each variant has a process of its own: one that crashes takes no other with it.
    """

    ENGINE = EngineInfo()

    def __init__(self, target: BuildTarget, environment: Environment) -> None:
        self._module = str(getattr(target.engine, "__name__", ""))
        names = ("edgekit", self._module.partition(".")[0])
        self._packages = {name: Path(str(sys.modules[name].__file__)).parent for name in names}
        self._environment = environment
        self._version = ""

    def engine_version(self) -> str:
        """Name and version of the engine.

        Raises:
            EngineError: it can't be imported.
        """
        if not self._version:
            self._started().close()
        return self._version

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> OlderRunner:
        """Load a variant.

        Raises:
            EngineError: the engine refused the files.
        """
        child = self._started()
        try:
            for name, path in files.items():
                copy = child.folder / "files" / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            request: dict[str, Json] = {
                "do": "open",
                "files": list(files),
                "inputs": list(inputs),
                "outputs": list(outputs),
                "options": dict(options),
                "threads": threads,
            }
            response = _answer(child, request, OPEN_SECONDS)
        except BaseException:
            child.close()
            raise
        return OlderRunner(child, str(response["precision"]), str(response["device"]))

    def _started(self) -> ToolchainChild:
        """Return a process that has imported the engine."""
        child = ToolchainChild(self._environment, RELEASE_CHILD, reads=self._packages.values())
        packages = {name: str(path) for name, path in self._packages.items()}
        try:
            request: dict[str, Json] = {"do": "import", "module": self._module, "packages": packages}
            self._version = str(_answer(child, request, OPEN_SECONDS)["version"])
        except BaseException:
            child.close()
            raise
        return child


class OlderRunner:
    """A variant that an older release has loaded."""

    def __init__(self, child: ToolchainChild, precision: str, device: str) -> None:
        self._child, self.precision, self.device = child, precision, device
        self.close = child.close

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run it once; shapes and dtypes as its runner takes and returns them.

        Raises:
            EngineError: the run failed.
        """
        np.savez(self._child.folder / "in.npz", *feeds.values())
        names = _answer(self._child, {"do": "run", "inputs": list(feeds)}, RUN_SECONDS)["outputs"]
        try:
            with np.load(self._child.folder / "out.npz", allow_pickle=False) as arrays:
                return {name: arrays[f"arr_{index}"] for index, name in enumerate(names)}
        except (OSError, ValueError, KeyError) as problem:
            raise EngineError(f"the older release sent an invalid response: {problem}") from None

    def facts(self) -> dict[str, Json]:
        """Return no facts: those of the installed engine are in the evidence."""
        return {}


def _answer(child: ToolchainChild, request: Mapping[str, Json], seconds: float) -> dict[str, Json]:
    response = child.ask(request, seconds)
    if "refused" in response:
        raise EngineError(str(response["refused"]))
    return response
