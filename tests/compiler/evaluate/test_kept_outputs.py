"""Outputs for many samples take bounded memory, and compare as those in memory do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from edgekit.compiler.evaluate import kept_outputs
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.output_channels import OutputChannels
from edgekit.tensor_spec import Array

COMPARED = """
import resource, sys
import numpy as np
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.output_channels import OutputChannels
def runs(shift):
    for number in range(int(sys.argv[1])):
        yield {"y": np.full((4, 500_000), number + 1 + shift, np.float32)}
two, none = np.arange(2), np.zeros(2, bool)
channels = {"y": OutputChannels(np.repeat(two, 1_000_000), two, none, none, None)}
found = Evaluator(None, keep_outputs(runs(0)), channels=channels).evaluate(keep_outputs(runs(0.5)))
assert 0 < found.snr_db < 100
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
OUTPUT_BYTES = 8_000_000


def _runs(count: int = 3) -> Iterator[dict[str, Array]]:
    for number in range(count):
        yield {
            "boxes": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
            "none": np.zeros((0, 4), np.int64),
            "count": np.array(number, np.int64),
            "text": np.array(["é", "b"], object),
        }


def test_what_is_beyond_the_limit_is_read_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outputs, "KEPT_BYTES", sum(each.nbytes for each in next(_runs()).values()))
    kept = keep_outputs(_runs())
    assert [isinstance(each, dict) for each in kept] == [True, False, False]
    for found, expected in zip(kept, _runs(), strict=True):
        assert list(found) == list(expected)
        for name, array in found.items():
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
            assert np.array_equal(array, expected[name])
    kept[1]["boxes"][:] = 0  # a decoder may
    assert np.array_equal(kept[1]["boxes"], [[1, 2, 3], [4, 5, 6]])


def test_scores_do_not_depend_on_where_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    expected = [{"y": rng.normal(0, 1, (2, 50)) * [[100], [1]]} for _ in range(4)]
    found = [{"y": each["y"] + rng.normal(0, 0.1, (2, 50))} for each in expected]
    two, none = np.arange(2), np.zeros(2, bool)
    channels = {"y": OutputChannels(np.repeat(two, 50), two, none, none, None)}
    in_memory = Evaluator(None, expected, channels=channels).evaluate(found)
    monkeypatch.setattr(kept_outputs, "KEPT_BYTES", 0)
    assert (
        Evaluator(None, keep_outputs(expected), channels=channels).evaluate(keep_outputs(found)) == in_memory
    )


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_file_ends_with_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outputs, "KEPT_BYTES", 0)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    kept = keep_outputs(_runs())
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del kept
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count the most memory otherwise")
def test_a_comparison_takes_no_more_memory_for_more_samples() -> None:
    """30 samples of 8 MB take as much as 10, which are more than stay in memory."""
    peaks = []
    for count in (10, 30):
        command = [sys.executable, "-c", COMPARED, str(count)]
        peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] - peaks[0] < 2 * OUTPUT_BYTES  # of 2 x 20 more
