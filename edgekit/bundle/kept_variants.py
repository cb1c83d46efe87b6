"""The variants of a bundle that can be run: those that the build kept."""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.errors import NoVariantError


def kept_variants(bundle: Bundle) -> list[Variant]:
    """Return the variants that have files.

    Raises:
        NoVariantError: every variant was rejected by the build; each one's reason is listed.
    """
    variants = [variant for variant in bundle.variants if variant.files]
    if not variants:
        reasons = "\n".join(f"  {variant.name}: {variant.reason}" for variant in bundle.variants)
        raise NoVariantError(
            f"{bundle.name} has nothing to run: the build rejected all variants\n"
            f"{reasons}\n"
            "  build it again with another target or precision, or more samples; force ships int8 as it is"
        )
    return variants
