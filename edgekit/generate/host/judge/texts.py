"""Texts that language models are judged on, and the text that int4 is fitted to.

All were written for EdgeKit. Three kinds are judged: prose, source code (Python, C, JavaScript, SQL), and a
chat, which is written with the model's own template. The text that weights are fitted to has parts of each
kind; none of it is judged.

Sections of the files are separated by lines of ``---``. A section that begins with ``> `` is a chat: such
lines are the user's, those that follow the assistant's.
"""

from __future__ import annotations

import re
from importlib.resources import files

from edgekit.errors import CardError, EngineError, UsageError
from edgekit.generate.device.template_sandbox import compile_template
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.processing.tokenizer import open_whole, tokenize

KIND_TOKENS = 768
"""Maximum tokens of a judged text."""
TEXT_TOKENS = 2560
"""Maximum tokens of other texts: a tokenizer with few words makes more of them."""
FILES = {"prose": "evaluation_text.txt", "code": "code_text.txt", "chat": "chat_text.txt"}
SECTIONS = "\n---\n"
Chat = list[dict[str, str]]


def evaluation_text() -> str:
    """Return the prose that models are judged on."""
    return _shipped(FILES["prose"])


def judged_texts(model: LanguageModel) -> dict[str, list[int]]:
    """Return the tokens of each judged text, by kind. No begin-of-text token is added.

    Raises:
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed, or jinja2 for a model with a template.
    """
    return {
        kind: tokens_of(model, _written(model, _shipped(name)), special_tokens=False)[:KIND_TOKENS]
        for kind, name in FILES.items()
    }


def calibration_tokens(model: LanguageModel) -> list[int]:
    """Return the tokens that int4 is fitted to: chats, source code and prose, none of which is judged.

    Raises:
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed, or jinja2 for a model with a template.
    """
    return tokens_of(model, _written(model, _shipped("calibration_text.txt")))


def tokens_of(model: LanguageModel, text: str, special_tokens: bool = True) -> list[int]:
    """Return the first TEXT_TOKENS tokens of a text.

    Raises:
        CardError: the tokenizer is damaged, or returns no tokens.
        MissingDependency: the package ``tokenizers`` is not installed.
    """
    ids = tokenize(model.tokenizer, text, TEXT_TOKENS, special_tokens).ids
    if not ids or max(ids) >= model.config.vocabulary:
        raise EngineError(
            f"{model.name}: its tokenizer returns tokens that the model does not have; check that both "
            "belong together"
        )
    return ids


def _shipped(name: str) -> str:
    return files("edgekit.generate.host.judge").joinpath(name).read_text("utf-8")


def _written(model: LanguageModel, text: str) -> str:
    """Join the sections of a file, chats in the form of the model's template."""
    sections = text.split(SECTIONS)
    chats = {section: _messages(section) for section in sections if section.startswith("> ")}
    written = _in_template(model, chats)
    return "".join(written.get(section, f"{section}\n\n") for section in sections)


def _messages(section: str) -> Chat:
    """Split a chat into messages."""
    _, *turns = re.split(r"^> (.*)$", section, flags=re.MULTILINE)
    return [
        {"role": ("user", "assistant")[index % 2], "content": turn.strip()}
        for index, turn in enumerate(turns)
    ]


def _in_template(model: LanguageModel, chats: dict[str, Chat]) -> dict[str, str]:
    """Write chats with the model's template; as plain turns if it has none, or refuses them."""
    if model.chat_template and chats:
        token = open_whole(model.tokenizer).id_to_token
        eos = token(model.stop_ids[0]) if model.stop_ids else ""
        variables = {"bos_token": "", "eos_token": eos or ""}
        try:
            render = compile_template(model.chat_template)
            return {section: render({**variables, "messages": chat}) for section, chat in chats.items()}
        except (CardError, UsageError):
            pass
    return {
        section: "".join(f"{turn['role'].title()}: {turn['content']}\n\n" for turn in chat)
        for section, chat in chats.items()
    }
