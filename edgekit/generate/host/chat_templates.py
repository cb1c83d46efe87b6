"""Chat templates for ``--chat-template``: a file, or the name of a common format."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.errors import CardError, ModelError, UsageError
from edgekit.generate.device.template_sandbox import TEMPLATE_LIMIT_CHARS, compile_template
from edgekit.generate.device.text_tokens import TextTokenizer
from edgekit.generate.host.readers.language.language_model import LanguageModel

QUESTION, ANSWER = "Which day is it?", "It is Monday."


class _Format(NamedTuple):
    """How a turn is written: ``before``, role, ``after``, the text without blanks at its ends, ``end``.

    Attributes:
        assistant: The assistant's role in the text.
        has_system: Whether there is a system's turn; else its text begins the first turn.
    """

    before: str
    after: str
    end: str
    assistant: str = "assistant"
    has_system: bool = True

    def template(self) -> str:
        opening = "{% set turns = messages %}"
        if not self.has_system:
            opening = (
                "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
                "{% set turns = messages[1:] if system else messages %}"
            )
        system = "" if self.has_system else "{{ system + '\\n\\n' if system and loop.first }}"
        role = f"{{{{ '{self.assistant}' if turn['role'] == 'assistant' else turn['role'] }}}}"
        return (
            f"{{{{ bos_token }}}}{opening}{{% for turn in turns %}}{self.before}{role}{self.after}{system}"
            f"{{{{ turn['content'] | trim }}}}{self.end}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{self.before}{self.assistant}{self.after}{{% endif %}}"
        )

    def tokens(self) -> tuple[str, ...]:
        return self.before, self.end.rstrip("\n")


FORMATS = {
    "chatml": _Format("<|im_start|>", "\n", "<|im_end|>\n"),
    "llama3": _Format("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
    "gemma": _Format("<start_of_turn>", "\n", "<end_of_turn>\n", assistant="model", has_system=False),
}
"""Format by its name: Qwen's and SmolLM's, Llama 3's, Gemma's, as their makers publish them."""


def with_chat_template(model: LanguageModel, choice: str | os.PathLike[str]) -> LanguageModel:
    """Return the model with another chat template. The token after an answer in it ends texts as well.

    Args:
        choice: Path of a file with a Jinja template, or the name of a format.

    Raises:
        UsageError: it is neither, or the model does not have the tokens of the format.
        ModelError: the file cannot be read, or its template fails for a question and an answer.
    """
    tokenizer = TextTokenizer(model.tokenizer)
    name = os.fspath(choice)
    if name in FORMATS:
        missing = [token for token in FORMATS[name].tokens() if token not in tokenizer.special]
        if missing:
            raise UsageError(
                f"--chat-template {name}: {model.name} has no special token {missing[0]}, so it was not "
                "trained on that format; give a file with the template of its model page"
            )
        source = FORMATS[name].template()
    else:
        source = _read(Path(name))
    bos_token = tokenizer.text_of(model.bos_id)
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    variables: dict[str, Any] = {"bos_token": bos_token, "eos_token": tokenizer.text_of(model.stop_ids[0])}
    try:
        text = compile_template(source)({**variables, "messages": messages, "add_generation_prompt": False})
    except (CardError, UsageError) as problem:
        raise ModelError(f"--chat-template {name}: {problem}") from None
    if QUESTION not in text or ANSWER not in text:
        raise ModelError(
            f"--chat-template {name}: its text lacks the question or the answer of a chat; it must write the "
            "content of each of ``messages``"
        )
    after = tokenizer.encode(text.partition(ANSWER)[2].lstrip(), adds_special=False)
    ends = [token for token in after[:1] if tokenizer.text_of(token) in tokenizer.special]
    return replace(model, chat_template=source, stop_ids=tuple(sorted({*model.stop_ids, *ends})))


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(TEMPLATE_LIMIT_CHARS + 1)
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "is not UTF-8 text"
        raise UsageError(
            f"--chat-template {path}: {reason}; give a Jinja file, or one of {', '.join(FORMATS)}"
        ) from None
