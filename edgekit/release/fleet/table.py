"""The table of a fleet: what runs where, how often it failed, how fast it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from edgekit.release.fleet.devices import Amounts, Device, Fleet, amounts_of
from edgekit.runtime.metrics.histogram import PER_DOUBLING
from edgekit.system.formats.plain_text import milliseconds

COLUMNS = ("channel", "class", "bundle", "version", "devices", "answers", "failed", "fallback", "score",
           "p50", "p95", "given up")  # fmt: skip


@dataclass(frozen=True)
class FleetRow:
    """The devices of a channel and class whose newest bundle is this one.

    Attributes:
        devices: Number of devices that run it now.
        amounts: Counts with this bundle, including devices of this channel and class that have another one
            now.
        p50_ms, p95_ms: End-to-end time in milliseconds, within 2.2 %. None means not reported.
    """

    channel: str
    device_class: str
    bundle: str
    version: str
    devices: int
    amounts: Amounts
    p50_ms: float | None
    p95_ms: float | None
    given_up: int
    variants: dict[str, int]

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        amounts = self.amounts
        shares = (
            f"{100 * value / amounts.answers:.2f} %" if amounts.answers else "-"
            for value in (amounts.failed, amounts.fallback)
        )
        return (
            self.channel or "-",
            self.device_class,
            self.bundle,
            self.version,
            str(self.devices),
            str(amounts.answers),
            *shares,
            f"{amounts.score_sum / amounts.scores:.3f}" if amounts.scores else "-",
            *("-" if value is None else milliseconds(value) for value in (self.p50_ms, self.p95_ms)),
            str(self.given_up) if self.given_up else "-",
        )

    def as_json(self) -> dict[str, Any]:
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        amounts = row.pop("amounts")
        row["class"] = row.pop("device_class")
        row["mean_score"] = amounts.score_sum / amounts.scores if amounts.scores else None
        return row | {key: getattr(amounts, key) for key in ("answers", "failed", "fallback", "scores")}


def lines_of(fleet: Fleet) -> list[FleetRow]:
    """Return a line for each channel, class and bundle."""
    groups: dict[tuple[str, str, str], list[Device]] = {}
    for device in fleet.devices.values():
        last = device.newest
        for bundle in dict.fromkeys([*(digest for digest, _ in device.processes), *last.given_up]):
            groups.setdefault((last.channel, last.device_class, bundle), []).append(device)
    order = {bundle: number for number, bundle in enumerate(fleet.bundles)}
    keys = sorted(groups, key=lambda key: (*key[:2], order.get(key[2], -1), key[2]))
    return [_line(*key, groups[key]) for key in keys]


def _line(channel: str, device_class: str, bundle: str, devices: Sequence[Device]) -> FleetRow:
    rows = [row for device in devices for row in device.last_rows(bundle)]
    amounts, buckets, version = Amounts(), Counter[int](), "-"
    for row in rows:
        amounts, version = amounts.plus(amounts_of(row)), row.version
        first, counts = row.buckets
        buckets.update({index: count for index, count in enumerate(counts, first) if count})
    now = [device.newest for device in devices if device.newest.bundle == bundle]
    variants = Counter(f"{row.variant} on {row.engine}" for row in now)
    return FleetRow(
        channel,
        device_class,
        bundle,
        version,
        len(now),
        amounts,
        _quantile_ms(buckets, 0.5),
        _quantile_ms(buckets, 0.95),
        sum(bundle in device.newest.given_up for device in devices),
        dict(variants.most_common()),
    )


def _quantile_ms(buckets: Counter[int], q: float) -> float | None:
    """Return the middle of the bucket that contains the quantile ``q``, in ms. None if there are no
    counts."""
    rank, passed = max(1.0, q * buckets.total()), 0
    for index in sorted(buckets):
        passed += buckets[index]
        if passed >= rank:
            return float(1000 * 2.0 ** ((index + 0.5) / PER_DOUBLING))
    return None
