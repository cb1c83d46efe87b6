"""Texts by a JSON schema or a grammar, from a decoder that would write anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from edgekit.errors import UsageError
from tests.fixtures.numpy_decoder import NumpyDecoder
from tests.generate.device.conftest import Open

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_llguidance]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


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
        ({"grammar": "x" * (1 << 21)}, "grammar has 2097152 characters; 262144 are allowed"),
        ({"json_schema": {"type": "nothing"}}, "json_schema can't be used: "),
        ({"json_schema": {"a": {1, 2}}}, "json_schema is not valid JSON: "),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema can't be used: "),
        ({"json_schema": nested(200)}, "json_schema can't be used: recursion limit exceeded"),
        ({"grammar": "start: " + '"w" ' * 60_000}, "grammar can't be used: at 1(8): grammar size"),
    ],
)
def test_what_can_not_be_used_is_one_error(opened: Open, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened().generate("a", **options)
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 400


DEEP = """
import json, sys, threading
from edgekit.errors import UsageError
from edgekit.generate.device.guidance import GuideMaker
from edgekit.generate.device.options import GenerateOptions
from tests.fixtures.numpy_decoder import STOP_ID, byte_tokenizer

rules = 15_000
grammar = "start: a0\\n" + "".join(f"a{i}: a{i + 1} \\n" for i in range(rules)) + f"a{rules}: \\"x\\"\\n"
objects = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(1500)}
schema = {"$defs": {**objects, "d1500": {}}, "$ref": "#/$defs/d0"}
references = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(20_000)}
longest = {"$defs": {**references, "d20000": {"type": "integer"}}, "$ref": "#/$defs/d0"}
maker = GuideMaker(byte_tokenizer(), frozenset({STOP_ID}))

def use():
    for options in ({"grammar": grammar}, {"json_schema": schema}, {"json_schema": longest}):
        try:
            guide = maker.guide(GenerateOptions(**options))
            for _ in range(3):
                guide.push(int(guide.allowed(STOP_ID + 1).argmax()))
                if guide.ended:
                    break
            print("guides")
        except UsageError as problem:
            print(problem)

threading.stack_size(512 << 10)  # as threads have it on macOS
thread = threading.Thread(target=use)
thread.start()
thread.join()
"""


def test_a_deep_grammar_does_not_end_the_process() -> None:
    child = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout.split()) == (0, ["guides"] * 3), child.stderr[-500:]


def test_other_threads_have_their_usual_stack(opened: Open) -> None:
    before = threading.stack_size()
    opened().generate("a", grammar='start: "yes"', max_tokens=5).text()
    assert threading.stack_size() == before
