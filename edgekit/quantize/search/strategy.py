"""The search for a target's int8: which candidate to make next, when to stop, and what is worth shipping.

Decisions only: what a candidate is worth is measured by the function that is given, on samples that chose
nothing else (``Split.choose``). In order, each step by what the steps before it showed:

    1. with ``--precision int8`` the target's likeliest placement with the default recipe, and with the
       plainest one (min-max, round to nearest): that is mostly all
    2. every placement with a quick recipe, which tells what is fast, and about how accurate it is
    3. what is on the front with the default recipe, with the plainest one, then with one change of the
       default at a time: better numbers cost no time on a device
    4. where that leaves something to win: the blocks that hurt stay float, as islands closed from the input
       or to the output, or the worst few alone (``sensitivity``)

A placement that is not faster than the float parent is not followed: no recipe makes it faster.

Where nothing can be timed there is one candidate, of the most ``worth``; what stays float has a price:

    1. as above, and the end where nothing is left to win
    2. every placement with the quick recipe; the one of the most worth with the others
    3. islands of that one, and of the placement with the least float, with its best recipe
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgekit.evaluate.fidelity import Fidelity, Score
from edgekit.evaluate.relative_time import FASTER, SURELY_FASTER
from edgekit.quantize.recipe import Recipe
from edgekit.tensors import Json

DEFAULT = Recipe()
PLAIN = Recipe(ranges="minmax", rounding="nearest", bias_correction=False)
"""Round to nearest within what was observed: what most tools do."""
QUICK = Recipe(rounding="nearest", bias_correction=False)
"""No layer is looked at twice: seconds less than the default, and accurate enough to compare structures."""
UNCORRECTED = Recipe(bias_correction=False)
"""The default without its one step that is as likely to harm: it rests on few values behind a pool."""
TIGHT = Recipe(ranges="l2")
"""What clips more. A detector may gain: YOLOX-nano without depthwise kernels, two targets, two calibrations
each: self-mAP .935 .891 .932 .929 by the default, .928 .943 .931 .958 by this; all of it int8 .863 and .837.
EfficientNet-Lite0 loses 1 dB."""
MOVED = replace(TIGHT, bias_correction=False, compensation=1.0)
"""Weights move, not biases: YOLOX-nano, tflite, three calibrations .852 .878 .873; DEFAULT .822 .789 .841"""
CHANGES: tuple[Mapping[str, Any], ...] = (
    {"ranges": "l2"},
    {"bias_correction": False},
    {"ranges": "minmax"},
    {"compensation": 1.0},
)
"""What else a recipe may be, one at a time. Which of them helps differs from network to network: bias
correction gave EfficientNet-Lite0 2.8 dB and YOLOX-nano nothing; a ridge below 1 overfits (by 5 dB)."""
STRUCTURES = 3
"""At most so many structures are followed with better recipes."""
GAIN = {"": 0.02, "dB": 3.0}
"""Least difference in accuracy that makes two points of a front two, by unit: half of the noise, in dB."""
PRICE = {unit: gain / (2 * (1 - FASTER)) for unit, gain in GAIN.items()}
"""What accuracy is given for all products to stay float, where nothing is timed. int8 multiplies at twice the
rate of float16 (tensor cores, the Neural Engine): 6 % of the products in float are 3 % of the time, which is
what FASTER tells apart, and must bring a GAIN."""
POINTS = 3
"""At most so many points of a front are worth their size: the fastest ones that are good enough."""
ENOUGH, ENOUGH_DB = 0.985, 40.0
"""Accuracy from which on nothing is left to win."""
ENOUGH_WITH_CLASSES_DB = 25.0
"""The same where, besides, all classes agree: then what is left of the noise has nothing to move."""


@dataclass(frozen=True)
class CandidateConfig:
    """One candidate: a placement of the target, how numbers are chosen, and what else stays float."""

    placement: str
    recipe: Recipe = DEFAULT
    floats: frozenset[str] = frozenset()

    def __str__(self) -> str:
        recipe = self.recipe
        words = [self.placement, recipe.ranges, recipe.rounding]
        words += ["bias"] if recipe.bias_correction else []
        words += [f"ridge {recipe.compensation:g}"] if recipe.compensation is not None else []
        words += [f"{len(self.floats)} nodes float"] if self.floats else []
        return ", ".join(words)

    def as_json(self) -> dict[str, Json]:
        return {"placement": self.placement, "recipe": asdict(self.recipe), "floats": sorted(self.floats)}

    @classmethod
    def parse(cls, row: Json) -> CandidateConfig:
        """What :meth:`as_json` gave. Raises KeyError or TypeError where it is something else."""
        return cls(str(row["placement"]), Recipe(**row["recipe"]), frozenset(map(str, row["floats"])))


@dataclass(frozen=True)
class Measurement:
    """One candidate that was made.

    Attributes:
        choice: What it is.
        found: What it is worth on the samples for choosing; None where it did not run.
        ratio: Its time over the float parent's; None where no engine ran it here.
        refused: Why it could not be made or run; "" where it could.
        share: Part (0 to 1) of the products that stay float, of those that the target could compute on
            integers.
    """

    choice: CandidateConfig
    found: Fidelity | None
    ratio: float | None
    refused: str = ""
    share: float = 0.0

    @property
    def rank(self) -> float:
        return self.found.rank if self.found is not None else -math.inf

    @property
    def unit(self) -> str:
        """Of the rank."""
        return self.found.rank_unit if self.found is not None else ""

    @property
    def names_classes(self) -> bool:
        """Whether its agreement is one of classes, and its rank in dB."""
        return self.found is not None and bool(self.unit) and not self.found.agreement.unit

    @property
    def saturated(self) -> bool:
        """Whether nothing is left to win."""
        if self.found is None:
            return False
        if self.names_classes and self.found.agreement.value >= ENOUGH:
            return self.rank >= ENOUGH_WITH_CLASSES_DB
        return self.rank >= (ENOUGH_DB if self.unit else ENOUGH)

    @property
    def worth(self) -> float:
        """What untimed candidates are compared by: accuracy, up to where none is left to win, less the price
        of what stays float."""
        rank = min(self.rank, _enough(self.unit)) if self.saturated else self.rank
        return rank - PRICE[self.unit] * self.share

    @property
    def faster(self) -> bool:
        """Whether it is worth following; where nothing could be timed, everything is."""
        return self.found is not None and (self.ratio is None or self.ratio <= FASTER)

    @property
    def surely_faster(self) -> bool:
        """Whether no other timing would say otherwise; where nothing could be timed, as :attr:`faster`."""
        return self.found is not None and (self.ratio is None or self.ratio <= SURELY_FASTER)


Measure = Callable[[CandidateConfig], Measurement]
FindFloatRegions = Callable[[CandidateConfig, float], Sequence[frozenset[str]]]
"""Of a candidate: sets of nodes that might stay float, the most promising first, each of which takes away at
least a part (0 to 1) of the damage."""


def search(
    placements: Sequence[str],
    measure: Measure,
    islands: FindFloatRegions,
    enough: Callable[[Measurement], bool] | None,
    in_time: Callable[[CandidateConfig], bool],
) -> list[Measurement]:
    """Try candidates until there are none left, ``enough`` says so, or time is up.

    Args:
        placements: The target's, the likeliest winner first.
        measure: Makes a candidate and measures it.
        islands: What might stay float besides.
        enough: Whether the search may end with this candidate. Where it is faster, but not surely so, the
            other placements are tried first, quickly, and the best of those that are enough takes its place.
            Beside it are tried the default recipe, the plainest, unless classes are named the one that clips
            more, and the default without bias correction where the plainest is better than these. None: a
            front is looked for, and nothing is optimised before it is known to be fast.
        in_time: Whether there is time for a candidate. The first is made whatever it says, and so is the
            plainest recipe of what is enough, which costs little.

    Returns:
        All that was tried, in order.
    """
    tried: list[Measurement] = []
    for choice in _choices(placements, islands, tried, enough is not None):
        if any(t.choice == choice for t in tried) or (tried and not in_time(choice)):
            continue  # a cheaper one may still fit
        tried.append(measure(choice))
        if enough is not None and enough(tried[-1]):
            if not tried[-1].surely_faster:
                for other in (CandidateConfig(placement, QUICK) for placement in placements):
                    if all(t.choice.placement != other.placement for t in tried) and in_time(other):
                        tried.append(measure(other))
            structure = one_of(front([t for t in tried if enough(t)])).choice
            for recipe in (DEFAULT, PLAIN, TIGHT, UNCORRECTED):
                other, best = replace(structure, recipe=recipe), _best(tried, structure)
                if (recipe == UNCORRECTED and best.choice.recipe != PLAIN) or (
                    recipe == TIGHT and (best.names_classes or best.saturated)
                ):
                    continue
                if not any(t.choice == other for t in tried) and (recipe == PLAIN or in_time(other)):
                    tried.append(measure(other))
            break
    return tried


def one_of(points: Sequence[Measurement]) -> Measurement:
    """Of a front the one point that is shipped where one is asked for: the most accurate of those that are
    surely faster; where none is, of all."""
    return max(points, key=lambda t: (t.surely_faster, t.rank))


def search_untimed(
    placements: Sequence[str],
    measure: Callable[[CandidateConfig], Measurement],
    islands: FindFloatRegions,
    share: Callable[[CandidateConfig], float],
    in_time: Callable[[CandidateConfig], bool],
) -> list[Measurement]:
    """Search where times tell nothing: the result, and all arguments but one, are those of :func:`search`.

    Args:
        share: Part of the products that a candidate leaves in float, before it is made.
    """
    tried: list[Measurement] = []
    for choice in _untimed_choices(placements, islands, share, tried):
        if any(t.choice == choice for t in tried):
            continue
        if tried and not in_time(choice):
            continue
        tried.append(measure(choice))
    return tried


def _untimed_choices(
    placements: Sequence[str],
    islands: FindFloatRegions,
    share: Callable[[CandidateConfig], float],
    tried: Sequence[Measurement],
) -> Iterator[CandidateConfig]:
    yield CandidateConfig(placements[0])
    yield CandidateConfig(placements[0], PLAIN)
    if any(each.saturated for each in tried):
        return
    for placement in placements:
        yield CandidateConfig(placement, QUICK)
    base = _most_worth(tried).choice
    yield from (replace(base, recipe=recipe) for recipe in (DEFAULT, PLAIN, MOVED, UNCORRECTED))
    yield from _changes(base, tried)
    best = _best(tried, base)
    if best.worth >= _enough(best.unit):
        return
    least = min((t for t in tried if t.found is not None), key=lambda t: t.share, default=best).choice
    for placement in dict.fromkeys((base.placement, least.placement)):
        for floats in islands(CandidateConfig(placement), 0.0):
            grown = CandidateConfig(placement, best.choice.recipe, floats)
            # Accurate as it may be, it might not be worth what it leaves in float.
            if _enough(best.unit) - PRICE[best.unit] * share(grown) > _most_worth(tried).worth:
                yield grown
    grown = _most_worth(tried).choice
    yield from (replace(grown, recipe=recipe) for recipe in (PLAIN, DEFAULT, TIGHT, UNCORRECTED))


def _most_worth(tried: Sequence[Measurement]) -> Measurement:
    return max(tried, key=lambda t: (t.found is not None, t.worth, -t.share))


def _enough(unit: str) -> float:
    return ENOUGH_WITH_CLASSES_DB if unit else ENOUGH


def beside_plain(
    winner: Measurement, tried: list[Measurement], measure: Callable[[CandidateConfig], Measurement]
) -> Measurement:
    """What is shipped for a winner: the same structure rounded to nearest within the observed range, where
    that is better. So nothing that is shipped is worse than it on the samples that choose.

    Args:
        winner: Of a search.
        tried: All that the search tried; the plainest candidate is added where the search had no time for it.
        measure: Makes it.
    """
    plain = replace(winner.choice, recipe=PLAIN)
    other = next((t for t in tried if t.choice == plain), None)
    if other is None:
        other = measure(plain)
        tried.append(other)
    return other if other.rank > winner.rank else winner


def _choices(
    placements: Sequence[str], islands: FindFloatRegions, tried: Sequence[Measurement], may_end: bool
) -> Iterator[CandidateConfig]:
    """What to try next; ``tried`` grows while this runs, and is looked at each time."""
    if may_end:
        yield CandidateConfig(placements[0])
    slow = bool(tried) and tried[0].found is not None and not tried[0].faster  # in every recipe
    if may_end and not slow:
        yield CandidateConfig(placements[0], PLAIN)
    for placement in placements[slow:]:
        yield CandidateConfig(placement, QUICK)
    structures = front([t for t in tried if t.choice.recipe == QUICK])[-STRUCTURES:]
    recipe = DEFAULT
    for structure in reversed(structures):
        yield replace(structure.choice, recipe=recipe)
        yield replace(structure.choice, recipe=PLAIN)
        yield from _changes(structure.choice, tried)
        # The other structures begin where this one ended.
        recipe = _optimised(_best(tried, structure.choice).choice.recipe)
    for best in [t for t in front(tried) if not t.saturated]:
        for floats in islands(best.choice, _needed(best)):
            grown = replace(best.choice, floats=floats)
            yield grown
            if not any(t.choice == grown for t in tried):  # no time was left; for this one may be
                yield replace(grown, recipe=QUICK)
    for point in [t for t in front(tried) if t.choice.floats]:
        yield from (replace(point.choice, recipe=recipe) for recipe in (PLAIN, DEFAULT))


def _needed(found: Measurement) -> float:
    """The part of the damage that an island must take away to be a point beside what was found: a GAIN."""
    gain = GAIN[found.unit]
    return 1 - 10 ** (-gain / 10) if found.unit else gain / max(1 - found.rank, gain)


def _changes(structure: CandidateConfig, tried: Sequence[Measurement]) -> Iterator[CandidateConfig]:
    """The best recipe of a structure so far with one change at a time."""
    for change in CHANGES:
        best = _best(tried, structure)
        if best.saturated:
            break
        yield replace(structure, recipe=replace(_optimised(best.choice.recipe), **change))


def _optimised(recipe: Recipe) -> Recipe:
    """The recipe where weights are optimised in it, else the default: what a change is made to."""
    return recipe if recipe.rounding == DEFAULT.rounding else DEFAULT


def _best(tried: Sequence[Measurement], like: CandidateConfig) -> Measurement:
    """The best recipe so far of a placement and its float nodes."""
    own = [t for t in tried if (t.choice.placement, t.choice.floats) == (like.placement, like.floats)]
    return max(own, key=lambda t: t.rank)


def front(tried: Sequence[Measurement]) -> list[Measurement]:
    """What is worth shipping: the fastest first, each slower one better by more than chance.

    Only what is faster than the parent, and of two that differ by less than timings wobble the better one.
    Where nothing could be timed: the one of the most worth.
    """
    usable = [t for t in tried if t.faster]
    if usable and all(t.ratio is None for t in usable):
        return [_most_worth(usable)]
    kept: list[Measurement] = []
    # From the best downwards, each must be faster than all that are better.
    for each in sorted(usable, key=lambda t: (-t.rank, t.ratio or 0)):
        if not kept or (each.ratio or 1) <= FASTER * (kept[-1].ratio or 1):
            kept.append(each)
    # From the fastest upwards, each must be better than the one before it, which left something to win.
    points: list[Measurement] = []
    for each in reversed(kept):
        if not points or (not points[-1].saturated and each.rank >= points[-1].rank + GAIN[each.unit]):
            points.append(each)
    return points[:POINTS]


def why_lost(loser: Measurement, winners: Sequence[Measurement], missed: str) -> str:
    """Why a candidate is not shipped, in words.

    Args:
        loser: The candidate.
        winners: What is shipped.
        missed: What the goal says of it; "" where it is met.
    """
    if loser.found is None:
        return loser.refused
    if loser.ratio is not None and loser.ratio > FASTER:
        return f"{loser.ratio:.2f}x the time of fp32"
    if missed:
        return missed
    figure = _figure(loser)
    for winner in winners:
        if winner.ratio is None and loser.ratio is None:
            return f"{figure}: {winner.choice} is worth more"
        if winner.rank >= loser.rank and (winner.ratio or 1) <= (loser.ratio or 1):
            return f"{figure}: {winner.choice} is better and no slower"
    return f"{figure}: too close to another one to be worth its size"


def _figure(tried: Measurement) -> str:
    score = tried.found.agreement if tried.found is not None else Score("SNR", -math.inf, "dB")
    text = f"SNR {score}" if score.unit else str(score)
    if tried.ratio is None:
        return f"{text}, {100 * tried.share:.0f} % of the products in float" if tried.share else text
    return f"{text} at {tried.ratio:.2f}x the time of fp32"
