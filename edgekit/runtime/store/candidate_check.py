"""The golden vectors of a candidate, run on this device's engine before its first answer."""

from __future__ import annotations

from edgekit.runtime.loading.golden_check import check_golden, limits_db
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.runtime.session import Session


def check_candidate(session: Session) -> None:
    """Run the golden vectors of a session's bundle, and those of a cascade's later stages.

    A variant that raises is left for the next one, as in any run; what is compared is what answers then.

    Raises:
        EngineError: the outputs are not those of the model.
        NoVariantError: no variant answers.
        BundleError: a golden vector is damaged.
    """
    for opened in (session, *session.stages.values()):
        outputs = [spec.name for spec in opened.outputs]
        bundle = opened.bundle
        checks = OutputChecks(opened.outputs, lambda bundle=bundle: bundle.golden, bundle.shapes)  # type: ignore[misc]
        for _ in bundle.variants:
            ran = opened.active.variant
            variant = next(variant for variant in bundle.variants if variant.name == ran)
            limits = limits_db(variant, outputs)
            check_golden(opened, bundle.golden_of(variant), checks, limits)  # type: ignore[arg-type]
            if opened.active.variant == ran:
                break
