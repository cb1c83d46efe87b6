"""A model's version in its bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from edgekit.bundle.model_version import model_version, with_version
from edgekit.errors import BundleError, UsageError
from tests.fixtures.bundles import small_bundle, small_manifest


def test_a_version_is_added_and_nothing_else_changes(tmp_path: Path) -> None:
    bundle = small_bundle()
    path = with_version(bundle, 7).save(tmp_path / "seven.edgekit")
    with Bundle.open(path) as seven:
        seven.verify_entries()
        assert (model_version(bundle), model_version(seven)) == (None, 7)
        assert seven.digest != bundle.digest
        assert {**seven.manifest, "extensions": None} == {**bundle.manifest, "extensions": None}


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 1 << 63])
def test_what_is_no_version_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="a whole number of 0 or more, not"):
        with_version(small_bundle(), value)  # type: ignore[arg-type]
    if value != 1 << 63:  # which JSON readers of 64 bits refuse before
        bundle = Bundle.create(
            {**small_manifest(), "extensions": {"version": value}},
            {
                entry["name"]: bytes(small_bundle().read(entry["name"]))
                for entry in small_bundle().manifest["entries"]
            },
        )
        with pytest.raises(BundleError, match=r"extensions\.version of its manifest is not a whole number"):
            model_version(bundle)
