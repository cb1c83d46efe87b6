"""A chat's messages to the tokens that a model reads, by the bundle's template.

The contents of messages can't become special tokens: where one has the text of such a token, a placeholder
stands for it until the rest is tokens. So nobody can end his turn and begin the assistant's.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.errors import UsageError
from edgekit.runtime.generate.template_sandbox import Render
from edgekit.runtime.generate.text_tokens import TextTokenizer, check_length

MESSAGES_LIMIT = 10_000
BEGIN, END = "\ue000", "\ue001"
"""Around a placeholder: of Unicode's private use, with a number in between that nobody can know."""


def checked_messages(messages: object, context: int) -> list[dict[str, Any]]:
    """Messages of a chat, copied.

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
    return [dict(message) for message in messages]


def chat_tokens(
    render: Render,
    variables: Mapping[str, Any],
    tokenizer: TextTokenizer,
    messages: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Return the tokens of a chat; special ones come from the template alone.

    Args:
        render: Result of ``compile_template``.
        variables: Variables of the template, e.g. ``bos_token``.
        tokenizer: Tokenizer of the model.
        messages: Result of ``checked_messages``.

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

    safe = [
        {key: hide(value) if isinstance(value, str) else value for key, value in message.items()}
        for message in messages
    ]
    text = render({**variables, "messages": safe, "add_generation_prompt": True})
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
