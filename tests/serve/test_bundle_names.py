"""What bundles are called in URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from edgekit.errors import UsageError
from edgekit.serve.model_entries import bundles_by_name

pytestmark = pytest.mark.needs_ort


def test_names_of_bundles(bundle: Path, tmp_path: Path) -> None:
    with Bundle.open(bundle) as opened:
        second = with_version(opened, 3).save(tmp_path / "small-3.edgekit")
        third = with_version(opened, 3).save(tmp_path / "small-4.edgekit")
    assert bundles_by_name([str(bundle), f"other={bundle}", str(second), str(third)]) == {
        ("small", "1"): (bundle,),
        ("other", "1"): (bundle,),
        ("small", "3"): (second,),
        ("small-4", "3"): (third,),
    }
    detector = tmp_path / "detector.edgekit"  # the name of the file, not of the model that it was built from
    detector.write_bytes(bundle.read_bytes())
    assert list(bundles_by_name([str(detector)])) == [("detector", "1")]
    with pytest.raises(UsageError, match="are both small 1; name one of them"):
        bundles_by_name([str(bundle), str(bundle)])
    with pytest.raises(UsageError, match="can't be a name in a URL"):
        bundles_by_name([f"a/b={bundle}"])
