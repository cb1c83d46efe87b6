from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.compiler.bench.compare import centre_interval
from edgekit.errors import UsageError

BLOCKS = 20
Noise = Callable[[np.random.Generator], npt.NDArray[np.float64]]


def _normal(random: np.random.Generator) -> npt.NDArray[np.float64]:
    return random.normal(0, 0.02, BLOCKS)


def _heavy(random: np.random.Generator) -> npt.NDArray[np.float64]:
    """One block in five met other load, on either side."""
    disturbed = random.random(BLOCKS) < 0.2
    return random.normal(0, 0.02, BLOCKS) + disturbed * random.laplace(0, 0.2, BLOCKS)


@pytest.mark.parametrize("noise", [_normal, _heavy])
def test_the_interval_holds_the_truth_as_often_as_it_says(noise: Noise) -> None:
    random = np.random.default_rng(0)
    found = [centre_interval(0.03 + noise(random)) for _ in range(2000)]
    held = np.mean([interval.low <= 0.03 <= interval.high for interval in found])
    assert 0.94 <= held <= 0.97  # 95 % and the standard error of 2000 trials, .5 %


def test_three_percent_are_found_in_nineteen_of_twenty() -> None:
    random = np.random.default_rng(0)
    found = [centre_interval(np.log(1.03) + _normal(random)) for _ in range(500)]
    assert np.mean([interval.low > 0 for interval in found]) >= 0.95


def test_it_is_the_interval_of_the_signed_rank_test() -> None:
    # Hollander, Wolfe, Chicken, table A.4: of 10 values P(T >= 47) = .024, so that 55 - 47 + 1 = 9 Walsh
    # averages are left out at each end, and the ninth is the bound.
    values = np.array([1.0, 2.5, 4.0, 7.0, 11.0, 16.0, 22.0, 29.0, 37.0, 46.0])
    first, second = np.triu_indices(10)
    walsh = np.sort((values[first] + values[second]) / 2)
    assert centre_interval(values)[1:] == (walsh[8], walsh[-9])


def test_too_few() -> None:
    with pytest.raises(UsageError, match=r"^5 pairs are too few for an interval at 95%$"):
        centre_interval([1, 2, 3, 4, 5])
