"""The card of a language model: what turns texts into tokens, and what ends an answer. Data, no code.

In a bundle it stands where other models' cards do, with files next to it:

    {"title": "SmolLM2", "task": {"kind": "generate", "tokenizer": "tokenizer.json",
     "chat_template": "chat_template.jinja", "stop_ids": [2], "bos_id": null, "context_length": 8192}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgekit.errors import CardError, UsageError
from edgekit.system.formats.strict_tables import get, only, texts, whole_numbers
from edgekit.tensor_spec import Json

KIND = "generate"
TOKENIZER_FILE, CHAT_TEMPLATE_FILE = "tokenizer.json", "chat_template.jinja"
STOP_IDS_LIMIT = 64
CONTEXT_LIMIT_TOKENS = 1 << 27
_ABOUT = ("license",)


class GenerationCard(NamedTuple):
    """Card of a language model.

    Attributes:
        tokenizer: Name of a Hugging Face ``tokenizer.json`` next to the card. The tokenizer prepends
            ``bos_id`` itself.
        chat_template: Name of a Jinja template next to the card, or "".
        stop_ids: Tokens that end a response.
        bos_id: Token at the beginning of every text, or None.
        context_length: Maximum number of tokens in a text and its response.
        about: ``license``, if the model's file has one.
    """

    title: str
    tokenizer: str
    chat_template: str
    stop_ids: tuple[int, ...]
    bos_id: int | None
    context_length: int
    about: Mapping[str, str]

    def as_json(self) -> dict[str, Json]:
        """Return the card in the form that ``read_generation`` reads."""
        task: dict[str, Json] = {
            "kind": KIND,
            "tokenizer": self.tokenizer,
            "chat_template": self.chat_template,
            "stop_ids": list(self.stop_ids),
            "bos_id": self.bos_id,
            "context_length": self.context_length,
        }
        return {"title": self.title, "task": task, **({"about": dict(self.about)} if self.about else {})}


def is_generation(card: Mapping[str, Json] | None) -> bool:
    """Return whether a bundle's card is that of a language model."""
    task = card.get("task") if card else None
    return isinstance(task, dict) and task.get("kind") == KIND


def refuse_generation(card: Mapping[str, Json] | None, name: str) -> None:
    """Refuse the bundle of a language model if arrays are run.

    Raises:
        UsageError: it is one.
    """
    if is_generation(card):
        raise UsageError(
            f"{name} has a language model, which does not run on arrays: use edgekit generate, or "
            "edgekit.generate.TextSession"
        )


def read_generation(card: Mapping[str, Json], location: str) -> GenerationCard:
    """Read the card of a language model.

    Raises:
        CardError: it is malformed.
    """
    only(card, ("title", "task", "about"), location)
    task, section = get(card, "task", dict, location), f"{location}: task"
    only(task, ("kind", "tokenizer", "chat_template", "stop_ids", "bos_id", "context_length"), section)
    tokenizer, template = get(task, "tokenizer", str, section), get(task, "chat_template", str, section)
    for name in (tokenizer, template):
        if "/" in name or "\\" in name or (name != template and not name):
            raise CardError(f"{section}: {name!r} is not the name of a file beside the card")
    stop_ids = whole_numbers(task, "stop_ids", section)
    if not 0 < len(stop_ids) <= STOP_IDS_LIMIT or min(stop_ids) < 0:
        raise CardError(f"{section}.stop_ids must be 1 to {STOP_IDS_LIMIT} tokens")
    bos_id = task.get("bos_id")
    if bos_id is not None and (type(bos_id) is not int or bos_id < 0):
        raise CardError(f"{section}.bos_id must be a token or null")
    context = get(task, "context_length", int, section)
    if not 0 < context <= CONTEXT_LIMIT_TOKENS:
        raise CardError(f"{section}.context_length is {context}; it must be 1 to {CONTEXT_LIMIT_TOKENS}")
    about = texts(card, "about", _ABOUT, location)
    return GenerationCard(
        get(card, "title", str, location), tokenizer, template, stop_ids, bos_id, context, about
    )
