"""The search for a target's int8 with its clock, its record, and what is written of it into the manifest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from edgekit.bundle.evidence import SearchedCandidate
from edgekit.pipeline.build_options import BuildOptions
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.quantize.search import measurement_cache
from edgekit.quantize.search.candidates import Candidates
from edgekit.quantize.search.measurement import (
    CandidateConfig,
    Measurement,
    measurement_as_json,
    parse_measurement,
)
from edgekit.quantize.search.strategy import rejection_reason, search, search_untimed
from edgekit.system.cpu import default_threads
from edgekit.target.quant_rules import Rules
from edgekit.tensors import Json

if TYPE_CHECKING:
    from edgekit.target.profile import Profile

Say = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        tried: In order.
        damage: Of each block that was looked at, in dB.
        left_out: Candidates that there was no time for.
    """

    tried: Sequence[Measurement]
    damage: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


def search_int8(
    data: QuantizationData,
    profile: Profile,
    rules: Rules,
    candidates: Candidates,
    asked: BuildOptions,
    seconds: float,
    version: str,
    say: Say,
) -> Found:
    """Search, or take the record of the same search."""
    key = measurement_cache.key(
        "search",
        data.bench.digest,
        repr(rules),
        profile.as_json(),
        version,
        default_threads(),
        # Not the share of the time that is left: it differs from build to build.
        [asked.precision, asked.goal.as_json(), asked.seconds, candidates.timed],
    )
    known = _recalled(measurement_cache.recall(key))
    if known is not None:
        return known
    clock = _Clock(seconds)
    damage: dict[str, float] = {}

    def measure(config: CandidateConfig) -> Measurement:
        with clock.spending(config):
            tried = candidates.measure(config)
        say(f"{profile.name}  {config}  {rejection_reason(tried, (), '')}")
        return tried

    def find_float_regions(config: CandidateConfig, least: float) -> Sequence[frozenset[str]]:
        if not clock.left():
            return ()
        found, snr_db = candidates.find_float_regions(config, clock.left, least)
        damage.update(snr_db)
        return found

    def enough(tried: Measurement) -> bool:
        return tried.faster and not why_missed(asked, tried, data)

    if candidates.timed:
        ends = enough if asked.precision == "int8" else None
        tried = search(rules.placements, measure, find_float_regions, ends, clock.has_time)
    else:
        tried = search_untimed(
            rules.placements, measure, find_float_regions, candidates.float_share, clock.has_time
        )
    rows = [{**t.config.as_json(), **measurement_as_json(t)} for t in tried]
    measurement_cache.record(key, {"tried": rows, "damage": damage, "left_out": clock.left_out})
    return Found(tried, damage, clock.left_out)


class _Clock:
    """Tells whether another candidate can be done within the time for a search.

    Time is the clock's, for it is the user who waits: on a machine that does something else besides, fewer
    candidates are tried. One is not begun where the last that was rounded like it took more than is left: the
    last, for the first one also looks at the float network, and times its parent.

    Args:
        seconds: For the search.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._last: dict[str, float] = {}
        self.left_out = 0

    def left(self) -> bool:
        return time.monotonic() < self._end

    def has_time(self, config: CandidateConfig) -> bool:
        is_in_time = time.monotonic() + self._last.get(config.recipe.rounding, 0.0) < self._end
        self.left_out += not is_in_time
        return is_in_time

    @contextmanager
    def spending(self, config: CandidateConfig) -> Iterator[None]:
        """Around the making of a candidate."""
        started = time.monotonic()
        yield
        self._last[config.recipe.rounding] = time.monotonic() - started


def _recalled(known: Json) -> Found | None:
    try:
        tried = [parse_measurement(CandidateConfig.parse(row), row) for row in known["tried"]]
        damage = {str(name): float(value) for name, value in known["damage"].items()}
        left_out = int(known["left_out"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    whole = [each for each in tried if each is not None]
    return Found(whole, damage, left_out) if whole and len(whole) == len(tried) else None


def as_fact(tried: Measurement, lost: str) -> SearchedCandidate:
    """A candidate as the manifest has it."""
    found, config = tried.fidelity, tried.config
    return {
        "choice": str(config),
        "placement": config.placement,
        "recipe": asdict(config.recipe),
        "floats": sorted(config.floats),
        "agreement": None if found is None else found.score.as_json(),
        "snr_db": None if found is None or not math.isfinite(found.snr_db) else found.snr_db,
        "task": None if found is None or found.task is None else found.task.as_json(),
        "ratio": tried.ratio,
        "lost": lost,
    }


def why_missed(asked: BuildOptions, tried: Measurement, data: QuantizationData) -> str:
    """Why a candidate is not good enough on the samples for choosing, beyond chance."""
    if tried.fidelity is None:
        return tried.failure
    return asked.goal.missed(tried.fidelity, data.labelled, len(data.bench.validation))


def best_refused(tried: Sequence[Measurement]) -> Measurement:
    """Of candidates that are all refused, the one worth a record: fast ones first, then the most accurate."""
    return max(tried, key=lambda t: (t.fidelity is not None, t.faster, t.rank))
