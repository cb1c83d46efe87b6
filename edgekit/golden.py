"""Re-verification: a bundle's golden vectors on the engines of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit import target
from edgekit.errors import EdgeKitError, MissingDependency
from edgekit.runtime import cache
from edgekit.verify import OutputError, compare

if TYPE_CHECKING:
    from edgekit.bundle import Bundle, Variant


@dataclass(frozen=True)
class Check:
    """One variant on this machine: ``status`` is ``verified on ...``, ``failed: why`` or ``not run: why``."""

    variant: str
    status: str
    outputs: Mapping[str, OutputError]

    @property
    def failed(self) -> bool:
        return self.status.startswith("failed")


def verify_bundle(bundle: Bundle) -> list[Check]:
    """Check every hash of the bundle, then run its variants on its golden vectors.

    The limits are those that each variant was verified by when it was built.

    Raises:
        BundleError: an entry is damaged.
    """
    bundle.verify_entries()
    return [_check(bundle, variant) for variant in bundle.variants if variant.files]


def _check(bundle: Bundle, variant: Variant) -> Check:
    engine = target.engine(variant.target)
    try:
        version = engine.engine_version()
    except MissingDependency as missing:
        return Check(variant.name, f"not run: {missing}", {})
    golden = bundle.golden
    try:
        files = cache.unpack(bundle, variant)
        runner = engine.open_runner(files, bundle.inputs, bundle.outputs, variant.options, threads=1)
        try:
            answers = [runner.run(feeds) for feeds, _ in golden]
        finally:
            runner.close()
    except EdgeKitError as problem:
        return Check(variant.name, f"failed: {version}: {problem}", {})
    return _judge(variant, version, answers, [expected for _, expected in golden])


def _judge(variant: Variant, version: str, answers: Sequence[Mapping], expected: Sequence[Mapping]) -> Check:  # type: ignore[type-arg]
    accuracy = variant.evidence.get("accuracy", {})
    errors = {
        name: compare([e[name] for e in expected], [a[name] for a in answers], figures["limit_db"])
        for name, figures in accuracy.items()
    }
    for name, error in errors.items():
        if not error.within_limit:
            why = f"failed: output {name}: SNR {error.snr_db} dB, the bundle asks for {error.limit_db:g} dB"
            return Check(variant.name, why, errors)
    return Check(variant.name, f"verified on {version}", errors)
