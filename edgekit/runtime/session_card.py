"""A bundle's card with the files that it names."""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import read_card_file
from edgekit.errors import UsageError
from edgekit.processing.card import Card, parse_card


def card_of(bundle: Bundle) -> Card:
    """Return the card of a bundle.

    Raises:
        UsageError: it has none.
        CardError: it is malformed.
        BundleError: a file that it names is absent or damaged.
    """
    if bundle.card is None:
        raise UsageError(
            f"{bundle.name} has no card, so it does not say how a frame becomes inputs; "
            "build it with a card, or use run() on arrays"
        )
    return parse_card(
        bundle.card, bundle.inputs, bundle.outputs, files=lambda name: read_card_file(bundle, name)
    )
