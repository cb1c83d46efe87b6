"""The distribution of docs/add-a-target.md (samples/extend/target): installed, built for and run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.verify import compare
from edgekit.runtime import Session
from edgekit.target import registry
from tests.fixtures import models
from tests.fixtures.sample_distributions import unpack

pytestmark = pytest.mark.needs_ort


def forget_installed() -> None:
    registry._entry_points.cache_clear()
    registry._by_its_name.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "edgekit_numpyref"]:
        del sys.modules[module]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sample's distribution, as pip would unpack it."""
    site = tmp_path / "site"
    unpack("target", site)
    monkeypatch.syspath_prepend(str(site))
    forget_installed()
    yield
    forget_installed()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("precision", "options", "least_db"),
    # A reference evaluator is no faster on integers: int8 ships by force.
    [("fp32", {}, 100.0), ("int8", {"time_budget": 0, "force": True, "fallback": False}, 15.0)],
)
def test_the_target_of_the_document_builds_and_runs(
    precision: str, options: dict[str, Any], least_db: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    samples = [{"image": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(6)]
    model = models.write(tmp_path, models.SMALL_CNN)
    bundle = edgekit.build(model, targets=["numpyref"], precision=precision, samples=samples, **options)
    (variant,) = bundle.variants
    assert (variant.name, variant.usable) == (f"numpyref-{precision}", True)
    assert variant.evidence["executed"] == {"device": "CPU", "precision": precision}
    assert variant.evidence.get("quantization", {}).get("integer_nodes", 0) == (
        2 if precision == "int8" else 0
    )
    assert bundle.manifest["tools"]["edgekit-numpyref"] == "0.3.1"
    assert bundle.manifest["profiles"]["numpyref"]["title"] == "onnx reference evaluator"
    bundle.save(tmp_path / "b.edgekit")
    inputs, expected = bundle.golden[0]
    with Session(tmp_path / "b.edgekit") as session:
        found = session.run(inputs)
    assert compare([expected["features"]], [found["features"]], least_db).within_limit


@pytest.mark.usefixtures("installed")
def test_its_packages_are_named_in_the_bundles_of_others(tmp_path: Path) -> None:
    """A build asks every installed target: which versions were there is a part of how it was made."""
    bundle = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"])
    assert bundle.manifest["tools"]["edgekit-numpyref"] == "0.3.1"


def test_a_target_that_does_not_load_breaks_no_other_build(
    tmp_path: Path, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "edgekit_numpyref" / "run.py").write_text("raise OSError('wrong wheel')", "utf-8")
    bundle = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"])
    assert "edgekit-numpyref" not in bundle.manifest["tools"]
