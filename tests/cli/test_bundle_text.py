"""The last lines of ``edgekit build``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.cli.bundle_text import _commands, built_text
from tests.fixtures.bundles import small_bundle
from tests.report.reported import timing, variant


def test_a_build_says_how_many_more_samples_would_prove_a_variant(tmp_path: Path) -> None:
    note = "not proved on 4 test samples: top-1 agreement of at least 0.90; 75 more samples would do"
    agreement = {"metric": "top-1 agreement", "value": 1.0, "unit": "", "low": 0.5, "not_proved": note}
    bundle = small_bundle([
        variant("int8", "int8", size_bytes=500, timing=timing(2.0), agreement=agreement),
        variant("fp32", "fp32", size_bytes=900, timing=timing(10.0)),
    ])  # fmt: skip
    path = bundle.save(tmp_path / "b.edgekit")
    lines = built_text(bundle, path, 1.0, quiet=True, verbose=False).splitlines()
    assert lines[1:6] == [
        "  fastest   fp32     10 ms  1.0x #     0.9 kB  as the source",
        "  unproved  int8     2 ms   5.0x ####  0.5 kB  100.0 % (50.0)",
        "  Timed on A CPU, 2 threads.",
        f"  note      int8  {note}",
        "",
    ]


@pytest.mark.parametrize(
    ("kind", "command"),
    [("audio", "run b.edgekit -i recording.wav"), ("image", "run b.edgekit -i photo.jpg --draw drawn.jpg")],
)
def test_the_first_command_to_try_fits_the_input(kind: str, command: str) -> None:
    card = {"task": {"kind": "any"}, "inputs": {"x": {"kind": kind}}}
    bundle = SimpleNamespace(card=card, variants=[SimpleNamespace(verified=True)])
    assert _commands(bundle, Path("b.edgekit"))[0] == f"  try:    edgekit {command}"  # type: ignore[arg-type]
