"""Crafted bundles, cards, samples, stores and signatures: each refused for its own reason."""

from __future__ import annotations

from tests.hostile.bundles import BUNDLES
from tests.hostile.cards import CARDS
from tests.hostile.samples import SAMPLES
from tests.hostile.stores import STORES

CORPUS = {
    f"{kind}: {name}": case
    for kind, cases in {"bundle": BUNDLES, "card": CARDS, "sample": SAMPLES, "store": STORES}.items()
    for name, case in cases.items()
}
