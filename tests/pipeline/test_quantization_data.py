from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.evaluate.samples import sample_digests
from tests.fixtures import models
from tests.fixtures.quantization_data import quantization_data

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def test_no_sample_both_chooses_and_proves(path: Path) -> None:
    found = quantization_data(path, 12)
    held_out = found.held_out.reference.samples
    groups = (found.bench.calibration, found.bench.validation, held_out)
    parts = [set(sample_digests(part)) for part in groups]
    assert [len(part) for part in parts] == [6, 2, 4]
    assert len(set.union(*parts)) == 12
    assert found.words() == "6 samples to fit, 2 to choose, 4 held out"
    assert [len(found.bench.evaluator.expected), len(found.held_out.evaluator.expected)] == [2, 4]
    assert (found.labelled, found.held_out.labelled) == (None, None)


def test_too_few_samples_are_said(path: Path) -> None:
    assert quantization_data(path, 1).words() == (
        "1 samples to fit, 1 to choose, 1 held out (choose and prove not held out: too few samples)"
    )


def test_other_samples_are_another_ground(path: Path) -> None:
    digests = [quantization_data(path, count).bench.digest for count in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_every_value_of_the_float_model_is_observed(path: Path) -> None:
    found = quantization_data(path, 3)
    assert {"image", "scores", "features"} <= set(found.bench.observations)
