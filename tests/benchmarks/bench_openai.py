"""Answers of a served language model through the ``openai`` client: chats, calls of functions, JSON schemas.

    pip install openai jsonschema
    python -m tests.benchmarks.bench_openai http://127.0.0.1:8080/v1 MODEL

The server is ``edgekit serve BUNDLE``. Fifty prompts, greedy; exit code 1 if an answer does not parse.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

WORDS = (
    "fibonacci",
    "factorial",
    "is_prime",
    "reverse_text",
    "count_vowels",
    "gcd",
    "flatten",
    "is_palindrome",
)
CITIES = ("Rome", "Oslo", "Lima", "Cairo", "Quito")
MAX_TOKENS = 300
WEATHER = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": ADD}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "languages": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
    },
    "required": ["name", "age", "languages"],
    "additionalProperties": False,
}


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield 50 requests, each with its kind."""
    for word in WORDS:
        yield "chat", _asked(f"Write a Python function {word}. Only code.")
        yield "chat, streamed", _asked(f"What does a function named {word} do? One sentence.", stream=True)
    for city in CITIES:
        yield "call by choice", _asked(f"What is the weather in {city}? Use a function.", tools=TOOLS)
        choice = {"type": "function", "function": {"name": "get_weather"}}
        yield "call of one", _asked(f"Is it warm in {city}?", tools=TOOLS, tool_choice=choice)
        yield "call required", _asked(f"Add {len(city)} and 7.", tools=TOOLS, tool_choice="required")
        yield "answer to a result", _answered(city)
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    for index in range(10):
        yield "schema", _asked(f"Invent programmer number {index}, as JSON.", response_format=form)
    for index in range(4):
        yield (
            "object",
            _asked(
                f"Write a JSON object of {index + 2} fruits and prices.",
                response_format={"type": "json_object"},
            ),
        )


def _asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def _answered(city: str) -> dict[str, Any]:
    call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    asked = _asked(f"What is the weather in {city}?", tools=TOOLS)
    asked["messages"] += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "c", "content": '{"sky": "cloudy", "celsius": 18}'},
    ]
    return asked


def fault_of(kind: str, client: Any, model: str, fields: dict[str, Any]) -> str:
    """Return what is wrong with the answer to a request; "" if nothing is."""
    import jsonschema

    answer = client.chat.completions.create(model=model, max_tokens=MAX_TOKENS, temperature=0, **fields)
    if fields.get("stream"):
        text = "".join(event.choices[0].delta.content or "" for event in answer)
        return "" if text.strip() else "empty"
    message, reason = answer.choices[0].message, answer.choices[0].finish_reason
    if "call" in kind:
        if not message.tool_calls:
            return f"no call: {message.content!r:.100}"
        for call in message.tool_calls:
            schema = next(f["parameters"] for f in (WEATHER, ADD) if f["name"] == call.function.name)
            jsonschema.validate(json.loads(call.function.arguments), schema)
        return ""
    if kind in ("schema", "object") and reason == "stop":
        jsonschema.validate(json.loads(message.content), PERSON if kind == "schema" else {"type": "object"})
    elif kind in ("schema", "object"):
        return f"cut: {message.content!r:.100}"
    return "" if message.content and message.content.strip() else "empty"


def main(url: str, model: str) -> int:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")
    counts: dict[str, list[int]] = {}
    began_s = time.monotonic()
    for kind, fields in requests():
        fault = _tried(partial(fault_of, kind, client, model, fields))
        if fault:
            print(f"{kind}: {fields['messages'][0]['content']}: {fault}")
        right, of = counts.get(kind, [0, 0])
        counts[kind] = [right + (not fault), of + 1]
    for kind, (right, of) in counts.items():
        print(f"{kind:20} {right:3} of {of}")
    print(f"{time.monotonic() - began_s:.0f} s")
    return int(any(right < of for right, of in counts.values()))


def _tried(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem!s:.200}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
