"""A/B comparison of two versions of a model: which requests a version takes, and what the app reports back.

split = TrafficSplit([parse_split("net:2=10%")])
split.version("net", headers)          # "2" for a tenth of the users, else None
split.report(("net", "2"), 1.0)        # the app's own measure of a response: a click, a corrected label
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgekit.errors import UsageError
from edgekit.serve.model_entries import Key
from edgekit.tensor_spec import Json

USER_HEADER = b"edgekit-user"
"""Header, or metadata key of gRPC, with an id of the user: the same user always gets the same version."""
LEAST_OUTCOMES = 30
"""Minimum number of outcomes of a version for an interval by the normal distribution."""
QUANTILE = 1.96
"""Quantile .975 of the normal distribution: the interval has 95 %."""


class Rule(NamedTuple):
    """Requests without a version that one version takes: a share of them, or those with a header's value."""

    key: Key
    share: float = 0.0
    header: tuple[bytes, bytes] = (b"", b"")

    def takes(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request with these headers is this version's."""
        name, value = self.header
        if name:
            return headers.get(name) == value
        user = headers.get(USER_HEADER)
        if not user:
            return random.random() < self.share
        digest = hashlib.sha256(b"\0".join([*(part.encode() for part in self.key), user])).digest()
        return int.from_bytes(digest[:6], "big") / 2**48 < self.share


def parse_split(text: str) -> Rule:
    """Parse ``NAME:VERSION=SHARE%`` or ``NAME:VERSION=HEADER:VALUE``.

    Raises:
        UsageError: it has another form, or the share is not between 0 and 100 %.

    >>> parse_split("net:2=10%").share, parse_split("net:2=X-Group: beta").header
    (0.1, (b'x-group', b'beta'))
    """
    served, _, requests = text.partition("=")
    name, _, version = served.partition(":")
    header, colon, value = (part.strip() for part in requests.partition(":"))
    if name and version and colon and header and value:
        return Rule((name, version), header=(header.lower().encode(), value.encode()))
    try:
        share = float(requests.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not (name and version and requests.endswith("%") and 0 < share < 1):
        raise UsageError(
            f"--split {text} can't be read; write NAME:VERSION=SHARE%, e.g. net:2=10%, or "
            "NAME:VERSION=HEADER:VALUE, e.g. net:2=X-Group:beta"
        )
    return Rule((name, version), share)


class TrafficSplit:
    """Rules of a server and the outcomes that apps report. The first rule that takes a request decides."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = rules
        self._lock = threading.Lock()
        self._outcomes: dict[Key, _Outcomes] = {}

    def version(self, name: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the version that takes a request for a model, or None if no rule does."""
        for rule in self.rules:
            if rule.key[0] == name and rule.takes(headers):
                return rule.key[1]
        return None

    def report(self, key: Key, value: float) -> None:
        """Count an outcome of a version."""
        with self._lock:
            self._outcomes.setdefault(key, _Outcomes()).add(value)

    def outcomes(self, name: str, current: str) -> dict[str, Json]:
        """Return count, mean and 95 % interval of each version's outcomes, and of its difference from the
        current version's. An interval is None below LEAST_OUTCOMES."""
        with self._lock:
            rows = {version: found.copy() for (n, version), found in self._outcomes.items() if n == name}
        base = rows.get(current, _Outcomes())
        return {
            "model": name,
            "current": current,
            "versions": [
                {"version": version, "outcomes": row.count, "mean": row.mean, "interval": row.interval()}
                | ({} if version == current else {"difference": row.mean - base.mean,
                                                  "difference_interval": row.interval(base)})
                for version, row in sorted(rows.items())
            ],
        }  # fmt: skip


class _Outcomes:
    """Running mean and variance (Welford, Technometrics 4, 1962)."""

    def __init__(self, count: int = 0, mean: float = 0.0, squares: float = 0.0) -> None:
        self.count, self.mean, self._squares = count, mean, squares

    def add(self, value: float) -> None:
        self.count += 1
        before = self.mean
        self.mean += (value - before) / self.count
        self._squares += (value - before) * (value - self.mean)

    def copy(self) -> _Outcomes:
        return _Outcomes(self.count, self.mean, self._squares)

    def _variance_of_mean(self) -> float:
        return self._squares / (self.count - 1) / self.count

    def interval(self, base: _Outcomes | None = None) -> list[Json] | None:
        """Return the 95 % interval of the mean, or of its difference from the base's mean."""
        found = [self] if base is None else [self, base]
        if any(one.count < LEAST_OUTCOMES for one in found):
            return None
        middle = self.mean - (0.0 if base is None else base.mean)
        half = QUANTILE * math.sqrt(sum(one._variance_of_mean() for one in found))
        return [middle - half, middle + half]
