from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.ground import Ground, find_ground
from edgekit.model_file import open_model, signature
from edgekit.passes import run_passes
from edgekit.samples import load_samples, sample_digests
from tests import models

pytestmark = pytest.mark.needs_ort


def ground(path: Path, count: int) -> Ground:
    source = open_model(path)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    rng = np.random.default_rng(0)
    arrays = [{"image": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]
    return find_ground(source, canonical, inputs, outputs, load_samples(arrays, inputs), None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def test_no_sample_both_chooses_and_proves(path: Path) -> None:
    found = ground(path, 12)
    parts = [set(sample_digests(part)) for part in (found.bench.fit, found.bench.choose, found.prove)]
    assert [len(part) for part in parts] == [6, 2, 4]
    assert len(set.union(*parts)) == 12
    assert found.words() == "6 samples to fit, 2 to choose, 4 held out"
    assert [len(found.bench.judge.expected), len(found.judge.expected)] == [2, 4]
    assert found.labelled == (None, None)


def test_too_few_samples_are_said(path: Path) -> None:
    assert ground(path, 1).words() == (
        "1 samples to fit, 1 to choose, 1 held out (choose and prove not held out: too few samples)"
    )


def test_other_samples_are_another_ground(path: Path) -> None:
    digests = [ground(path, count).bench.digest for count in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_every_value_of_the_float_model_is_observed(path: Path) -> None:
    found = ground(path, 3)
    assert {"image", "scores", "features"} <= set(found.bench.observations)
