"""The cards of samples/cards: they are read, and are the same after a bundle has carried them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.processing import load_card
from edgekit.processing.card import parse_card

CARDS = sorted((Path(__file__).resolve().parents[2] / "samples" / "cards").glob("*.toml"))


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_a_card_is_read_and_carried(path: Path) -> None:
    card = load_card(path)
    assert parse_card(card.as_json()) == card


def test_there_are_cards() -> None:
    assert len(CARDS) >= 18
