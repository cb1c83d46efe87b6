"""Calls of functions: how the model's template writes them, how they are parsed, and how one is forced."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from edgekit.serve.openai.api_errors import ApiError

TOOLS = 128
"""Maximum number of functions, as in the API."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
BEGIN, END = "<tool_call>", "</tool_call>"
DESCRIPTION = """# Tools

You may call functions. They are, one JSON object in a line:
{functions}

To call a function, answer with a JSON object of its name and all required arguments, within tags:
{begin}
{{"name": "<name of the function>", "arguments": {{"<name of the argument>": <value>}}}}
{end}
Results of calls come within <tool_response></tool_response>. If no function is needed, answer in words."""
TAGS, OBJECT = "tags", "object"
"""Forms of a call: a JSON object between tags (Hermes, Qwen), or the answer is the object (Llama 3)."""


class Tools(NamedTuple):
    """Functions of a request.

    Attributes:
        listed: Functions as the template lists them; empty if the model may call none.
        form: TAGS or OBJECT. "" means the model may call none.
        begin: Text with which a forced call begins.
        schema: Schema of a forced call. None means the model chooses.
        many: Whether an answer may have several calls.
        described: Functions that ``told_in_messages`` describes, because the template cannot list them.
    """

    listed: Sequence[Mapping[str, Any]] = ()
    names: frozenset[str] = frozenset()
    form: str = ""
    begin: str = ""
    schema: Mapping[str, Any] | None = None
    many: bool = True
    described: Sequence[Mapping[str, Any]] = ()


def form_of(template: str, special: Sequence[str]) -> str:
    """Return the form in which a template writes calls; "" if it does not list functions.

    >>> form_of("{% if tools %}<tool_call>{% endif %}", ()), form_of("{{ messages }}", ())
    ('tags', '')
    """
    if not re.search(r"\btools\b", template):
        return ""
    if BEGIN in template:
        return "" if BEGIN in special else TAGS  # special tokens are not part of a text
    return OBJECT if '"parameters"' in template or "'parameters'" in template else ""


def read_tools(body: Mapping[str, Any], template: str, special: Sequence[str]) -> Tools:
    """Read ``tools``, ``tool_choice`` and ``parallel_tool_calls``.

    Raises:
        ApiError: one is malformed, or the model's template has no place for functions.
    """
    tools, choice = body.get("tools"), body.get("tool_choice")
    many = body.get("parallel_tool_calls")
    if many is not None and not isinstance(many, bool):
        raise ApiError("parallel_tool_calls must be true or false", "parallel_tool_calls")
    if tools is None or tools == []:
        if choice not in (None, "none", "auto"):
            raise ApiError("tool_choice needs tools", "tool_choice")
        return Tools()
    if not isinstance(tools, list) or len(tools) > TOOLS:
        raise ApiError(f"tools is a list of at most {TOOLS} functions", "tools")
    functions = [_function(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        raise ApiError("two tools have the same name", "tools")
    if choice == "none":
        return Tools()
    form = form_of(template, special) or (TAGS if BEGIN not in special else "")
    if not form:
        raise ApiError(
            f"the model has a special token {BEGIN}, but its chat template does not list functions, so it "
            "cannot call tools; leave tools out",
            "tools",
        )
    forced = _forced(choice, names)
    if not forced and any(function.get("strict") for function in functions):
        raise ApiError(
            "strict is honored where a call is certain: send tool_choice required or a function, or "
            "strict false",
            "tools",
        )
    key = "parameters" if form == OBJECT else "arguments"
    schema = _call_schema([f for f in functions if f["name"] in forced], key) if forced else None
    begin = BEGIN + "\n" if forced and form == TAGS else ""
    listed = tools if form_of(template, special) else ()
    return Tools(listed, frozenset(names), form, begin, schema, many is not False, () if listed else tools)


def told_in_messages(messages: Sequence[Mapping[str, Any]], tools: Tools) -> list[dict[str, Any]]:
    """Return the messages for a template without functions: functions, calls and results are in the contents.

    The description is at the end of a system's message, or before the first user's.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        calls = [orjson.dumps(call["function"]).decode() for call in message.get("tool_calls", ())]
        texts = [message["content"], *(f"{BEGIN}\n{call}\n{END}" for call in calls)]
        role, content = message["role"], "\n".join(filter(None, texts))
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
            if told and told[-1]["role"] == "user":  # templates want turns of user and assistant
                told[-1]["content"] += f"\n{content}"
                continue
        others = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
        told.append({**others, "role": role, "content": content})
    place = next((turn for turn in told if turn["role"] in ("system", "user")), None)
    if tools.described and place is not None:
        functions = "\n".join(orjson.dumps(tool["function"]).decode() for tool in tools.described)
        text = DESCRIPTION.format(functions=functions, begin=BEGIN, end=END)
        parts = (place["content"], text) if place["role"] == "system" else (text, place["content"])
        place["content"] = "\n\n".join(parts)
    return told


def _function(tool: Any, location: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict):
        raise ApiError(f'{location} must be {{"type": "function", "function": {{...}}}}', "tools")
    if not isinstance(function.get("name"), str) or not NAME.fullmatch(function["name"]):
        raise ApiError(f"{location}.function.name must be 1 to 64 letters, digits, _ or -", "tools")
    if unknown := sorted(set(function) - {"name", "description", "parameters", "strict"}):
        raise ApiError(f"unknown field {unknown[0][:64]!r} in {location}.function", "tools")
    for name, kind in (("description", str), ("parameters", dict), ("strict", bool)):
        if function.get(name) is not None and not isinstance(function[name], kind):
            raise ApiError(f"{location}.function.{name} has the wrong type", "tools")
    return function


def _forced(choice: Any, names: Sequence[str]) -> Sequence[str]:
    """Return the functions of which one must be called. Empty means the model chooses."""
    if choice in (None, "auto"):
        return ()
    if choice == "required":
        return names
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names or choice.get("type") != "function":
        raise ApiError(
            'tool_choice is "none", "auto", "required" or {"type": "function", "function": {"name": ...}} '
            "with the name of a tool",
            "tool_choice",
        )
    return (name,)


def _call_schema(functions: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    forms = []
    for function in functions:
        parameters = dict(function.get("parameters") or {"type": "object", "properties": {}})
        for place in ("$defs", "definitions"):
            parts = parameters.pop(place, None) or {}
            if not isinstance(parts, dict):
                raise ApiError(f"{place} of the parameters of {function['name']} must be an object", "tools")
            for name, part in parts.items():
                if shared.setdefault(place, {}).setdefault(name, part) != part:
                    raise ApiError(f"two tools define {name[:64]!r} differently; rename one", "tools")
        forms.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, key: parameters},
                "required": ["name", key],
                "additionalProperties": False,
            }
        )
    return {**(forms[0] if len(forms) == 1 else {"anyOf": forms}), **shared}


def calls_in(text: str, tools: Tools) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of an answer without its calls, and the calls. What is not a valid call stays text.

    >>> tools = Tools((), frozenset(["add"]), TAGS)
    >>> text, calls = calls_in('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', tools)
    >>> text, calls[0]["function"]
    ('', {'name': 'add', 'arguments': '{"a":1}'})
    """
    whole = _call(text.strip(), tools.names)  # small models leave out the tags as well
    if whole is not None:
        return "", [whole]
    if tools.schema is not None or tools.form == OBJECT:
        return text, []
    calls = [_call(block, tools.names) for block in _blocks(text)]
    valid = [call for call in calls if call is not None]
    if not valid or len(valid) < len(calls):
        return text, []
    return text.partition(BEGIN)[0].rstrip(), valid if tools.many else valid[:1]


def _blocks(text: str) -> Iterator[str]:
    """Yield the texts between tags in linear time; a last one without its end tag, too."""
    for part in text.split(BEGIN)[1:]:
        yield part.partition(END)[0].strip()


def _call(text: str, names: frozenset[str]) -> dict[str, Any] | None:
    """Return a call; None if the text is not a valid one. A model may write anything."""
    try:
        call = orjson.loads(text)
        name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        written = orjson.dumps(arguments).decode()
    except (ValueError, TypeError, KeyError, AttributeError):  # TypeError: more than 254 levels, too
        return None
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": name, "arguments": written},
    }
