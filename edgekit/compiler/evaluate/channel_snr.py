"""SNR of an output by channel: the worst one counts, however small its values are next to the others'.

Channels of one scale are a part (pixels; scores), and a part has an SNR:

    output [1, 84, 8400]    box 0 to 3: up to 640    part 1: 34 dB
                            classes 4 to 83: up to 1 part 2:  6 dB   -> the output has 6 dB, not 34

A channel of a part may be CHANNEL_MARGIN_DB below the part. One that is constant, though the float model's
varies, is lost, whatever its SNR.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.compiler.evaluate.matched_rows import RowGroup, column_channels, match_rows
from edgekit.compiler.evaluate.output_channels import Channels, OutputChannels, columns_alone
from edgekit.compiler.evaluate.verify import compare
from edgekit.tensor_spec import Array

Outputs = Mapping[str, Array]

SCALES_APART = 8.0
"""Channels whose largest values differ by less are judged as one part. 8: with one scale for both, the
smaller part has 5 of the 8 bits."""
CHANNEL_MARGIN_DB = 8.0
"""Margin in dB by which a channel may be below the limit of its part."""
SMALL_SHARE = 1 / 64
"""A score is not smaller, for its SNR, than this share of its unit: four steps of int8. Most classes of a
detector are at a score near 0 in all samples."""
NOISE_SHARE = 1e-6
"""Any other channel is not smaller than this share of the output's largest value: float32's own noise."""
VARYING_SHARE = 1e-3
"""A channel varies if its standard deviation is more of its magnitude: a quarter of an int8 step."""
CONSTANT_SHARE = 0.1
"""A channel is lost if its standard deviation is less of the float model's. Rounded to the nearest of two
values in between it would be more."""
PART_DB, LOST_ROWS = 20.0, 0.1
"""Share of the rows that may be lost: it counts as much noise as a part may have."""
NAMED = 4


@dataclass(frozen=True)
class ChannelJudgement:
    """Judgement of one output.

    Attributes:
        snr_db: SNR of the worst part, or of the worst channel with its margin; ``inf`` if all is equal.
        parts: Number of parts of different scale.
        lost: Channels that are constant, or "".
    """

    snr_db: float
    parts: int
    lost: str = ""


class ChannelSums:
    """Sums over an output's values by channel; add each sample, then judge.

    Args:
        positions: The channel of each value that is added; None for the whole output.
    """

    def __init__(self, channels: OutputChannels, positions: Array | None = None) -> None:
        labels = channels.labels if positions is None else positions
        assert labels is not None
        self._channels, self._count = channels, len(channels.units)
        self._order = None if (np.diff(labels) >= 0).all() else np.argsort(labels, kind="stable")
        ordered = labels if self._order is None else labels[self._order]
        self._present, self._starts = np.unique(ordered, return_index=True)
        self._sizes = np.diff([*self._starts, len(ordered)])
        self._n, self._peak, self._x, self._xx, self._y, self._yy, self._ee = np.zeros((7, self._count))

    def add(self, expected: Array, actual: Array) -> None:
        """Add one sample's values, flat; both finite."""
        if not len(self._present):
            return
        x, y = (a.astype(np.float64) for a in (expected, actual))
        if self._order is not None:
            x, y = x[self._order], y[self._order]
        present = self._present
        self._n[present] += self._sizes
        self._peak[present] = np.maximum(self._peak[present], np.maximum.reduceat(np.abs(x), self._starts))
        for total, values in (
            (self._x, x), (self._xx, x * x), (self._y, y), (self._yy, y * y), (self._ee, np.square(x - y))
        ):  # fmt: skip
            total[present] += np.add.reduceat(values, self._starts)

    def judge(self) -> ChannelJudgement:
        channels = self._channels
        # A channel has a scale of its own, unless a bounded activation gives several one unit.
        names = np.where(channels.bounded, channels.units, -1 - np.arange(self._count))
        scale_of = {name: float(self._peak[names == name].max()) for name in np.unique(names).tolist()}
        scales = np.array([scale_of[name] for name in names.tolist()])
        alive = [one for one in np.argsort(-scales, kind="stable").tolist() if self._peak[one]]
        groups: list[list[int]] = []
        for one in alive:
            if not groups or scales[groups[-1][0]] > SCALES_APART * scales[one]:
                groups.append([])
            groups[-1].append(one)
        zeros = np.flatnonzero(self._peak == 0).tolist()  # their noise counts in the largest part
        groups = [[*(groups[0] if groups else []), *zeros], *groups[1:]]
        worst = min(self._snr_db(np.array(group, np.int64)) for group in groups)
        lost = []
        for one in alive:
            floor = SMALL_SHARE * scales[one] if channels.bounded[one] else NOISE_SHARE * scales.max()
            worst = min(worst, self._snr_db(np.array([one]), floor) + CHANNEL_MARGIN_DB)
            if self._is_constant(one, floor / 8):
                lost.append(one)
        return ChannelJudgement(worst, len(groups), _named(sorted(lost), self._count))

    def _snr_db(self, labels: Array, floor: float = 0.0) -> float:
        noise, signal = float(self._ee[labels].sum()), float(self._xx[labels].sum())
        signal = max(signal, floor**2 * float(self._n[labels].sum()))
        if noise == 0:
            return math.inf
        return round(10 * math.log10(signal / noise), 1) if signal else -math.inf

    def _is_constant(self, one: int, floor: float) -> bool:
        count = self._n[one]
        power = self._xx[one] / count
        expected = power - (self._x[one] / count) ** 2
        actual = self._yy[one] / count - (self._y[one] / count) ** 2
        varies = expected > max(VARYING_SHARE**2 * power, floor**2)
        return bool(varies and actual < CONSTANT_SHARE**2 * expected)


@dataclass(frozen=True)
class Judgement:
    """Judgement of all outputs.

    Attributes:
        snr_db: SNR of the worst output, by its worst part; ``inf`` if all are equal.
        lost: Channels that are constant, though the float model's vary, or "".
    """

    snr_db: float
    lost: str = ""


def judge_outputs(
    expected: Sequence[Outputs],
    actual: Sequence[Outputs],
    channels: Channels,
    groups: Sequence[RowGroup] = (),
) -> Judgement:
    """Judge a variant's outputs.

    Args:
        channels: Channels of the outputs that are judged by channel; the others are judged as a whole.
        groups: Outputs with rows that are matched first.
    """
    judged: dict[str, ChannelJudgement] = {}
    for group in groups:
        judged.update(_of_rows(group, expected, actual, channels))
    for name in expected[0]:
        if name not in judged:
            one = _of_channels(name, expected, actual, channels[name]) if name in channels else None
            judged[name] = one or _of_whole(name, expected, actual)
    lost = [f"output {name}: {one.lost}" for name, one in judged.items() if one.lost]
    return Judgement(min(one.snr_db for one in judged.values()), "; ".join(lost))


def is_of_parts(channels: OutputChannels, name: str, expected: Sequence[Outputs]) -> bool:
    """Return whether an output has parts of different scale, or rows."""
    if channels.rows is not None:
        return True
    same = _of_channels(name, expected, expected, channels)
    return same is not None and same.parts > 1


def _of_whole(name: str, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> ChannelJudgement:
    snr_db = compare((x[name] for x in expected), (y[name] for y in actual), 0).snr_db
    return ChannelJudgement(math.inf if snr_db is None else snr_db, 1)


def _of_channels(
    name: str,
    expected: Sequence[Outputs],
    actual: Sequence[Outputs],
    channels: OutputChannels,
) -> ChannelJudgement | None:
    """Judge one output by channel; None if its shape is not the expected one, or a value is not finite."""
    if channels.labels is None:
        return None
    sums = ChannelSums(channels)
    for outputs, others in zip(expected, actual, strict=True):
        x, y = outputs[name], others[name]
        if (
            x.shape != y.shape
            or x.size != len(channels.labels)
            or not (np.isfinite(x) & np.isfinite(y)).all()
        ):
            return None
        sums.add(x.ravel(), y.ravel())
    return sums.judge()


def _of_rows(
    group: RowGroup, expected: Sequence[Outputs], actual: Sequence[Outputs], channels: Channels
) -> dict[str, ChannelJudgement]:
    """Judge outputs whose rows are matched first. Lost rows count like noise: one of ten is 20 dB, the limit
    of a part."""
    tables: list[tuple[Array, Array]] = []
    judged = matched = 0
    for outputs, others in zip(expected, actual, strict=True):
        pairs = match_rows(group, outputs, others)
        if pairs is None:
            return {name: ChannelJudgement(-math.inf, 2) for name in group.axes}
        tables.append((group.table(outputs)[pairs.expected], group.table(others)[pairs.actual]))
        judged, matched = judged + pairs.judged, matched + len(pairs.expected)
    if not matched:
        return {name: ChannelJudgement(-math.inf, 2) for name in group.axes}
    share = (judged - matched) / judged
    limit = PART_DB - 10 * math.log10(share / LOST_ROWS) if share else math.inf
    x, y = (np.concatenate(side) for side in zip(*tables, strict=True))
    result, first = {}, 0
    for name, axis in group.axes.items():
        columns = column_channels(channels, name, expected[0][name], axis)
        last = first + len(columns)
        row_channels = channels[name] if channels[name].labels is not None else columns_alone(len(columns))
        sums = ChannelSums(row_channels, np.tile(columns, len(x)))
        sums.add(x[:, first:last].ravel(), y[:, first:last].ravel())
        one = sums.judge()
        result[name] = ChannelJudgement(min(one.snr_db, limit), 2, one.lost)
        first = last
    return result


def _named(lost: Sequence[int], count: int) -> str:
    """Return the channels as text.

    >>> _named([4, 5], 7), _named(list(range(8)), 9), _named([], 3)
    ('channels 4, 5 (2 of 7)', 'channels 0, 1, 2, 3 ... (8 of 9)', '')
    """
    if not lost:
        return ""
    names = ", ".join(map(str, lost[:NAMED])) + (" ..." if len(lost) > NAMED else "")
    return f"channel{'s' * (len(lost) > 1)} {names} ({len(lost)} of {count})"
