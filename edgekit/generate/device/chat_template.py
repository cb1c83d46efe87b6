"""A chat's messages to the tokens that a model reads, by the bundle's template.

The contents of messages can't become special tokens: where one has the text of such a token, a placeholder
stands for it until the rest is tokens. So nobody can end his turn and begin the assistant's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.errors import UsageError
from edgekit.generate.device.template_sandbox import Render
from edgekit.generate.device.text_tokens import TextTokenizer, check_length

MESSAGES_LIMIT = 10_000
DEPTH_LIMIT = 64
"""Lists and objects in one another, in a message or a tool."""
BEGIN, END = "\ue000", "\ue001"
"""Around a placeholder: of Unicode's private use, with a number in between that nobody can know."""


def checked_messages(messages: object, context: int) -> list[dict[str, Any]]:
    """Check the messages of a chat, and return a copy.

    Raises:
        UsageError: they are not a list of mappings with a role and a content, both texts; or are too long for
            the context.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise UsageError('messages are a list like [{"role": "user", "content": "..."}], and not empty')
    if len(messages) > MESSAGES_LIMIT:
        raise UsageError(f"there are {len(messages)} messages; {MESSAGES_LIMIT} are allowed")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise UsageError(f"messages[{index}] needs a role and a content, both texts")
    check_length("".join(message["content"] for message in messages), context)
    check_length("".join(_texts_of([*messages])), context)
    return [dict(message) for message in messages]


def check_tools(tools: Sequence[Mapping[str, Any]], context: int) -> None:
    """Check the functions that a model may call.

    Raises:
        UsageError: they are nested too deeply, or too long for the context.
    """
    check_length("".join(_texts_of([*tools])), context)


def _texts_of(values: list[Any]) -> Iterator[str]:
    """Yield all texts of nested lists and mappings, keys too."""
    todo = [(value, 1) for value in values]
    while todo:
        value, depth = todo.pop()
        if depth > DEPTH_LIMIT:
            raise UsageError(f"lists and objects of messages and tools are more than {DEPTH_LIMIT} deep")
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            todo += [(item, depth + 1) for pair in value.items() for item in pair]
        elif isinstance(value, list | tuple):
            todo += [(item, depth + 1) for item in value]


def chat_tokens(
    render: Render,
    variables: Mapping[str, Any],
    tokenizer: TextTokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    begin: str = "",
) -> list[int]:
    """Return the tokens of a chat; special ones come from the template alone.

    Args:
        variables: Variables of the template, e.g. ``bos_token``.
        messages: Result of ``checked_messages``.
        begin: Text with which the answer begins; the texts of special tokens in it are these tokens.

    Raises:
        UsageError: the template refuses these messages, or one is not a text.
        CardError: the template fails, or goes beyond its bounds.
    """
    mark = BEGIN + secrets.token_hex(8)
    hidden: list[str] = []

    def hide(text: str) -> str:
        for special in tokenizer.special:
            if special in text:
                text = text.replace(special, f"{mark}:{len(hidden)}{END}")
                hidden.append(special)
        return text

    def hidden_in(value: Any) -> Any:
        if isinstance(value, str):
            return hide(value)
        if isinstance(value, Mapping):
            return {hidden_in(key): hidden_in(item) for key, item in value.items()}
        return [hidden_in(item) for item in value] if isinstance(value, list | tuple) else value

    offered = {"tools": hidden_in(tools)} if tools else {}
    safe = hidden_in(messages)
    text = render({**variables, **offered, "messages": safe, "add_generation_prompt": True}) + begin
    first, *rest = text.split(f"{mark}:")
    tokens = tokenizer.encode(first, adds_special=False)
    for part in rest:
        index, ended, after = part.partition(END)
        if not (ended and index.isdigit() and int(index) < len(hidden)):  # the template cut it
            after = part
        else:
            tokens += tokenizer.encode(hidden[int(index)], adds_special=False, reads_special=False)
        tokens += tokenizer.encode(after, adds_special=False)
    return tokens
