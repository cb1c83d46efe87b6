"""The latency contract of a card, read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing.card import parse_card
from edgekit.processing.latency_contract import Latency

CARD = {"title": "t", "inputs": {"h": {"kind": "tensor", "shape": [1]}}}


def test_a_contract() -> None:
    card = parse_card({**CARD, "latency": {"p95_ms": 50, "stages": {"prepare": 8, "infer": 40.5}}})
    assert card.latency == Latency(50.0, {"prepare": 8.0, "infer": 40.5})
    assert parse_card(json.loads(json.dumps(card.as_json()))) == card
    assert parse_card({**CARD, "latency": {"p95_ms": 0.5}}).latency == Latency(0.5)
    assert parse_card(CARD).latency is None
    assert "latency" not in parse_card(CARD).as_json()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (50, "card: latency must be a table, not a whole number"),
        ({}, "card: latency has no p95_ms; it must be a number"),
        ({"p95_ms": True}, "card: latency.p95_ms must be a number, not true or false"),
        ({"p95_ms": 0}, "card: latency.p95_ms is 0; it must be above 0"),
        ({"p95_ms": 9, "p99_ms": 9}, "card: latency has an unknown key 'p99_ms'; it may have p95_ms, stages"),
        ({"p95_ms": 9, "stages": [1]}, "card: latency.stages must be a table, not a list"),
        (
            {"p95_ms": 9, "stages": {"infre": 1}},
            "card: latency.stages has an unknown key 'infre'; "
            "it may have decode, prepare, infer, decode_outputs, waiting",
        ),
        (
            {"p95_ms": 9, "stages": {"infer": 10}},
            "card: latency.stages.infer is 10; it must be above 0 and at most p95_ms, 9",
        ),
        (
            {"p95_ms": 9, "stages": {"infer": 0}},
            "card: latency.stages.infer is 0; it must be above 0 and at most p95_ms, 9",
        ),
    ],
)
def test_mistakes(table: Any, text: str) -> None:
    with pytest.raises(CardError) as error:
        parse_card({**CARD, "latency": table})
    assert str(error.value) == text
