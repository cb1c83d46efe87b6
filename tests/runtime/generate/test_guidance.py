"""Texts by a JSON schema or a grammar, from a decoder that would write anything."""

from __future__ import annotations

import json
import re

import pytest

from edgekit.errors import UsageError
from tests.fixtures.numpy_decoder import NumpyDecoder
from tests.runtime.generate.conftest import Open

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_llguidance]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("speculate", ["off", "lookup"])
def test_a_schema_is_obeyed(opened: Open, seed: int, speculate: str) -> None:
    session = opened(NumpyDecoder(seed), speculate=speculate)
    stream = session.generate("a pet:", json_schema=SCHEMA, max_tokens=200, temperature=1.0, seed=seed)
    answer = json.loads(stream.text())
    assert stream.result.reason == "stop"
    assert answer["kind"] in ("cat", "dog")
    assert len(answer["name"]) <= 5


def test_with_and_without_proposals_the_text_is_the_same(opened: Open) -> None:
    texts = [
        opened(NumpyDecoder(1), speculate=speculate)
        .generate("x" * 9, json_schema=SCHEMA, max_tokens=99)
        .text()
        for speculate in ("off", "lookup")
    ]
    assert texts[0] == texts[1]


def test_a_grammar_is_obeyed(opened: Open) -> None:
    grammar = 'start: "yes" | "no " DIGITS\nDIGITS: /[0-9]{2,4}/'
    texts = {
        opened().generate("well?", grammar=grammar, max_tokens=20, temperature=2.0, seed=seed).text()
        for seed in range(12)
    }
    assert all(re.fullmatch(r"yes|no \d{2,4}", text) for text in texts)
    assert len(texts) > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grammar": "start: /(/"}, "grammar can't be used: "),
        ({"grammar": "x" * (1 << 21)}, "grammar has 2097152 characters; 1048576 are allowed"),
        ({"json_schema": {"type": "nothing"}}, "json_schema can't be used: "),
        ({"json_schema": {"a": {1, 2}}}, "json_schema is no JSON: "),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema can't be used: "),
    ],
)
def test_what_can_not_be_used_is_one_error(opened: Open, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened().generate("a", **options)
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 400
