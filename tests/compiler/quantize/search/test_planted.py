"""What int8 can not hold is found and kept in float, and nothing else: 95 % of the loss is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.strategy import search_fastest
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.compiler.quantize.search import planted


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("make", "names"),
    [(planted.fragile_layer, {"fragile"}), (planted.outlier_channel, {"wide", "narrow"})],
)
def test_what_is_planted_is_found(make: Callable[[Path], Path], names: set[str], tmp_path: Path) -> None:
    ground = planted.ground_of(make(tmp_path))
    target = resolve(find_profile("ort"))
    assert target.rules is not None
    parent = target.compiler.compile_model(ground.search_context.model, target.profile, "fp32")
    planted_nodes = names | {f"{name}.relu" for name in names}
    with Candidates(ground.search_context, target, target.rules, parent, "test") as candidates:
        tried = search_fastest(
            ["all"],
            candidates.floats_of,
            candidates.measure,
            lambda config, least: candidates.find_float_regions(config, least)[0],
            lambda each: each.config.floats == planted_nodes,
            lambda each: True,
            lambda config: True,
        )
        found = next(each for each in tried if each.config.floats == planted_nodes)
        noise = [10 ** (-t.rank / 10) for t in (tried[0], found)]
        assert noise[1] <= 0.05 * noise[0]
        # The last layer has channels that are hardly ever active: they do not share a scale with the others.
        assert set(candidates.compile(found.config).floats) - {"after5"} == names
