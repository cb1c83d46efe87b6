"""Parts of a language model besides its decoder: a tokenizer, a chat template, and ids that end a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import CardError, UsageError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


class TextParts(NamedTuple):
    """The tokenizer and what belongs to it.

    Attributes:
        stop_ids: Tokens that end a text.
        template: Chat template, in Jinja as Hugging Face's tokenizers have it; "": the model is not for
            chats.
        bos_id: The token that begins a text, which the tokenizer itself puts there; None: there is none.
        context: Most tokens of a text; None: as many as the decoder has positions for.
    """

    tokenizer: bytes
    stop_ids: tuple[int, ...] = ()
    template: str = ""
    bos_id: int | None = None
    context: int | None = None


def parts_of(bundle: Bundle) -> TextParts:
    """Return the parts of a bundle.

    Raises:
        UsageError: it is not a language model.
        CardError: its card is malformed.
        BundleError: a file that the card names is absent or damaged.
    """
    from edgekit.bundle.card_files import read_card_file
    from edgekit.processing.generation import is_generation, read_generation

    if bundle.card is None or not is_generation(bundle.card):
        raise UsageError(
            f"{bundle.name} is not a language model; open it with edgekit.runtime.Session or edgekit run"
        )
    card = read_generation(bundle.card, f"{bundle.name}: card")
    template = ""
    if card.chat_template:
        try:
            template = read_card_file(bundle, card.chat_template).decode("utf-8")
        except UnicodeDecodeError:
            raise CardError(f"{bundle.name}: {card.chat_template} is not UTF-8 text") from None
    tokenizer = read_card_file(bundle, card.tokenizer)
    return TextParts(tokenizer, card.stop_ids, template, card.bos_id, card.context_length)
