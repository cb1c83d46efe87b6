"""Text to tokens, tokens to text piece by piece, and stop words in that text."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.errors import CardError, ContextLengthError, UsageError
from edgekit.processing.tokenizer import guarded, open_whole
from edgekit.processing.tokenizer_bounds import TOKEN_CHARS, TokenizerBounds

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

CHARS_A_TOKEN = 32
"""A text of more characters for each token of the context is refused before it is split."""
REPLACEMENT = "\ufffd"
"""Replacement that a decoder returns for bytes that are not a character, or not all of one yet."""
KEPT_TOKENS = 4
"""A character of UTF-8 has at most four bytes, and each token at least one of them."""
WAITING_LIMIT = 32
"""Tokens that wait for a character; after so many they are not text."""


class TextTokenizer:
    """A tokenizer for generation. Thread-safe.

    Args:
        content: The file that the package ``tokenizers`` saves as ``tokenizer.json``.

    Attributes:
        special: The texts of its special tokens.

    Raises:
        CardError: the file is not a tokenizer.
        MissingDependency: the package is not installed.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._tokenizer: Any = open_whole(content)
        self._bounds: TokenizerBounds = guarded(TokenizerBounds, self._tokenizer)
        added = self._tokenizer.get_added_tokens_decoder()
        self.special: tuple[str, ...] = tuple(t.content for t in added.values() if t.special and t.content)
        self._lock = Lock()

    def forked(self) -> None:
        """Replace the lock in a forked process, because another thread of the parent may have held it."""
        self._lock = Lock()

    def encode(self, text: str, *, adds_special: bool = True, reads_special: bool = True) -> list[int]:
        """Return the tokens of a text.

        Args:
            adds_special: Whether the tokenizer adds its own, e.g. a first one.
            reads_special: Whether the text of a special token becomes that token.

        Raises:
            UsageError: the text is none, or holds half of a surrogate pair.
        """
        if not isinstance(text, str):
            raise UsageError(f"a text must be a str, not a {type(text).__name__}")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError(
                "the text holds half of a surrogate pair, which is not a character; decode it again"
            )
        with self._lock:
            self._bounds.check(text)  # with the lock: those that wait for a slow text are refused after it
            self._tokenizer.encode_special_tokens = not reads_special
            with self._bounds.timed(text):
                encoding = guarded(self._tokenizer.encode, text, add_special_tokens=adds_special)
        return list(encoding.ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones.

        Raises:
            CardError: the texts of these tokens are too long.
        """
        length = sum(len(self._tokenizer.id_to_token(token) or "") for token in tokens)
        if length * self._bounds.decoded_growth > TOKEN_CHARS * max(1, len(tokens)):
            raise CardError(
                f"the card's tokenizer can't be used: {len(tokens)} tokens of it have {length} characters"
            )
        return str(guarded(self._tokenizer.decode, list(tokens), skip_special_tokens=True))

    def text_of(self, token: int | None) -> str:
        """Return the text of one token, a special one too; "" if there is no such token."""
        return "" if token is None else str(self._tokenizer.id_to_token(token) or "")


class TextPieces:
    """The text of tokens that come one by one. Joined, the pieces are the text.

    A token may end inside a character, and a decoder may write a first token otherwise than a later one (the
    space before a word). So each piece is the difference between two texts, of the last tokens with and
    without the new one, and replacement characters at the end wait for what they become. The package's own
    ``DecodeStream`` raises on bytes that never become a character.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = 0
        """Characters of the text of ``_tokens`` that were given out."""

    def push(self, token: int) -> str:
        """Return the text that one more token completes; empty while it ends inside a character."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        stable = text.rstrip(REPLACEMENT)
        if len(stable) < len(text):
            if len(self._tokens) < WAITING_LIMIT:
                return self._show(stable)
            stable = text[: 1 - KEPT_TOKENS]
        piece = self._show(stable)
        if len(self._tokens) > KEPT_TOKENS:
            self._tokens = self._tokens[-KEPT_TOKENS:]
            tail = self._tokenizer.decode(self._tokens)
            self._shown = max(0, len(tail) - (len(text) - len(stable)))
        return piece

    def rest(self) -> str:
        """Return, at the end, the text of tokens that completed no character."""
        return self._show(self._tokenizer.decode(self._tokens))

    def _show(self, text: str) -> str:
        piece = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return piece


class StopWords:
    """Lets text through up to the first stop word, and holds back what may become one.

    >>> words = StopWords(["###"])
    >>> words.push("one #"), words.push("# two #"), words.push("##"), words.reached
    ('one ', '## two ', '', True)
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.reached = False
        self._words = tuple(words)
        self._pending = ""

    def push(self, piece: str) -> str:
        """Add a piece and return the text that may be shown; at a stop word, the text before it."""
        if not self._words or self.reached:
            return "" if self.reached else piece
        text = self._pending + piece
        places = [position for word in self._words if (position := text.find(word)) >= 0]
        if places:
            self.reached, self._pending = True, ""
            return text[: min(places)]
        overlap = max(_overlap(text, word) for word in self._words)
        self._pending = text[len(text) - overlap :]
        return text[: len(text) - overlap]

    def rest(self) -> str:
        """Return, at the end, the text that was held back and is not a stop word."""
        pending, self._pending = self._pending, ""
        return pending


def check_length(text: str, context: int) -> None:
    """Refuse a text that can't fit, before the tokenizer reads it: that takes time and memory of its length.

    Raises:
        ContextLengthError: it has more than CHARS_A_TOKEN characters for each token of the context.
    """
    if isinstance(text, str) and len(text) > context * CHARS_A_TOKEN:
        raise ContextLengthError(
            f"the text has {len(text)} characters, and the context is {context} tokens: cut the text first, "
            "or open the session with a larger context"
        )


def _overlap(text: str, word: str) -> int:
    """Return the number of characters at the end of ``text`` that are a beginning of ``word``."""
    return next((n for n in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:n])), 0)


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
