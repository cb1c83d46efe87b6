"""Calls of tools in the texts of models: valid ones, texts, and what only looks like a call."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (the extra serve)")
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.serve.openai.api_errors import ApiError
from edgekit.serve.openai.text_responses import ResponseWriter
from edgekit.serve.openai.tool_calls import OBJECT, TAGS, Tools, calls_in, read_tools, told_in_messages

NAMES = frozenset(["weather", "now"])
CALL = '{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}'
TAGGED = f"<tool_call>\n{CALL}\n</tool_call>"


def streamed(pieces: list[str], tools: Tools) -> tuple[str, list[Any], str]:
    """Return the text, the calls and the reason of a streamed answer."""
    writer = ResponseWriter("m", True, tools, False)
    result = GeneratedText("".join(pieces), "stop", 1, 0, len(pieces), 1.0, 2.0)
    content = b"".join([writer.first(), *map(writer.piece, pieces), writer.last(result)])
    events = [json.loads(line[6:]) for line in content.decode().split("\n\n")[:-2]]
    deltas = [event["choices"][0]["delta"] for event in events]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    text = "".join(delta.get("content", "") for delta in deltas)
    return text, calls, events[-1]["choices"][0]["finish_reason"]


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("form", "answer", "text", "names"),
    [
        (TAGS, TAGGED, "", ["weather"]),
        (TAGS, f"I look.\n{TAGGED}", "I look.", ["weather"]),
        (TAGS, TAGGED[:-13], "", ["weather"]),  # ended before its end tag
        (TAGS, TAGGED + '<tool_call>{"name": "now", "arguments": {}}</tool_call>', "", ["weather", "now"]),
        (TAGS, "It is < 5 <tool", "It is < 5 <tool", []),
        (TAGS, TAGGED.replace("weather", "other"), None, []),
        (TAGS, "<tool_call>{bad}</tool_call> rest", None, []),
        (TAGS, f" {CALL} ", "", ["weather"]),
        (TAGS, '{"temperature": 5}', None, []),
        (OBJECT, f" {CALL} ", "", ["weather"]),
        (OBJECT, '{"name": "now", "parameters": {}}', "", ["now"]),
        (OBJECT, "  \n hello { }", None, []),
        (OBJECT, '{"temperature": 5}', None, []),
    ],
)  # fmt: skip
def test_calls_and_texts_whole_and_streamed(
    form: str, answer: str, text: str | None, names: list[str], size: int
) -> None:
    tools = Tools((), NAMES, form)
    kept = answer if text is None else text
    whole, calls = calls_in(answer, tools)
    assert (whole, [call["function"]["name"] for call in calls]) == (kept, names)
    shown, sent, reason = streamed(pieces_of(answer, size), tools)
    assert (shown.rstrip(), [call["function"]["name"] for call in sent]) == (kept.rstrip(), names)
    assert reason == ("tool_calls" if names else "stop")
    if "weather" in names:
        assert json.loads(sent[0]["function"]["arguments"]) == {"city": "Zürich", "days": 2}


@pytest.mark.parametrize(
    "written",
    [
        '{"name": ["weather"], "arguments": {}}',
        '{"name": "weather", "arguments": [1]}',
        '{"name": "weather", "arguments": {"city": "\\ud800"}}',
        '{"name": "weather", "arguments": {"n": NaN}}',
        '{"name": "weather", "arguments": {"a": ' + "[" * 900 + "]" * 900 + "}}",
        "[" * 100_000,
        "7",
        "null",
        "",
    ],
)
def test_a_malformed_call_stays_text(written: str) -> None:
    answer = f"<tool_call>{written}</tool_call>"
    assert calls_in(answer, Tools((), NAMES, TAGS)) == (answer, [])


WHITE_SPACE = """
from edgekit.serve.openai.tool_calls import TAGS, Tools, calls_in
calls_in("<tool_call>" + " " * 3_000_000 + "x", Tools((), frozenset(["weather"]), TAGS))
"""


def test_white_space_of_a_model_takes_linear_time() -> None:
    """A quadratic search of so much takes hours."""
    subprocess.run([sys.executable, "-c", WHITE_SPACE], check=True, timeout=300)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"$defs": [1]}, "must be an object"),
        ({"definitions": True}, "must be an object"),
        ({"$defs": {"a": {"type": "null"}}}, "differently"),
    ],
)
def test_definitions_of_tools_that_do_not_fit(parameters: Any, message: str) -> None:
    other = {"name": "now", "parameters": {"$defs": {"a": {"type": "string"}}}}
    given = [{"name": "weather", "parameters": parameters}, other]
    body = {"tools": [{"type": "function", "function": f} for f in given], "tool_choice": "required"}
    with pytest.raises(ApiError, match=message):
        read_tools(body, "{{ tools }}<tool_call>", ())


WEATHER = {"type": "function", "function": {"name": "weather", "description": "Today's {weather}"}}


@pytest.mark.parametrize("system", [True, False])
def test_a_template_without_functions_gets_them_in_its_messages(system: bool) -> None:
    tools = read_tools({"tools": [WEATHER]}, "{{ messages }}", ())
    assert (tools.listed, tools.form, tools.many) == ((), TAGS, True)
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Rome, and Oslo?\n"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "sun"},
        {"role": "tool", "content": "rain"},
        {"role": "user", "content": "Thanks"},
    ]
    found = told_in_messages(chat if system else chat[1:], tools)
    assert [turn["role"] for turn in found] == ["system"] * system + ["user", "assistant", "user", "user"]
    first, written = (
        found[0]["content"],
        '<tool_call>\n{"name":"weather","arguments":{"city":"Rome"}}\n</tool_call>',
    )
    assert first.startswith("Be short.\n\n# Tools") if system else first.endswith("\n\nRome, and Oslo?\n")
    assert '{"name":"weather","description":"Today\'s {weather}"}' in first
    assert found[-3]["content"] == f"{written}\n{written}"
    assert found[-2]["content"].count("<tool_response>") == 2
    assert calls_in(written, tools)[1][0]["function"]["name"] == "weather"
    plain = [{"role": "user", "content": "a", "name": "Ada"}]
    assert told_in_messages(plain, Tools()) == plain
    with pytest.raises(ApiError, match="special token <tool_call>"):
        read_tools({"tools": [WEATHER]}, "{{ messages }}", ("<tool_call>",))
