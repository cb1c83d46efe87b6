"""Texts by a JSON schema or a grammar: the package ``llguidance`` says which tokens may follow."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgekit.errors import UsageError, need_package
from edgekit.generate.device.options import GenerateOptions
from edgekit.processing.tokenizer import guarded
from edgekit.tensor_spec import Array

SCHEMA_LIMIT_CHARS, GRAMMAR_LIMIT_CHARS = 1 << 20, 256 << 10
SYMBOLS_LIMIT = 50_000
"""Symbols of a compiled grammar. 200 schemas in one another, of 20 properties each, have 20,000 to 50,000. A
sequence of half as many words took 0.7 GB; the package's own limit is ten times this one."""
STACK_CHAR_BYTES, STACK_BYTES = 1024, 16 << 20
"""Stack for each character of a grammar, and the smallest. The package recurses once for each rule or
reference and takes up to 4 kB for it; the shortest rule of thousands has 8 characters. On a usual stack 3,000
rules, or 1,000 objects in one another, end the process (llguidance 1.9.1). Unused pages take no memory."""
WHITESPACE = r"( |\n {0,16})?"
"""Between the parts of a JSON text: without a limit a model may write spaces to the end of its tokens. A
schema can have another one, as ``x-guidance``."""
NEEDED_FOR = "a text by a schema or a grammar"


class GuideMaker:
    """Makes the guides of one tokenizer, which the package reads once."""

    def __init__(self, tokenizer: bytes, stop_ids: frozenset[int]) -> None:
        self._content, self._stop_ids = tokenizer, sorted(stop_ids)
        self._tokenizer: Any = None

    def guide(self, options: GenerateOptions) -> Guide | None:
        """Return the guide of a generation; None where it has no schema and no grammar.

        Raises:
            UsageError: the schema or the grammar is invalid, or too complex.
            MissingDependency: the package is not installed.
        """
        if options.json_schema is None and options.grammar is None:
            return None
        with need_package("llguidance", NEEDED_FOR, extra="text"):
            import llguidance
        option = "json_schema" if options.grammar is None else "grammar"
        text = options.grammar if options.grammar is not None else _json(options.json_schema or {})
        allowed = SCHEMA_LIMIT_CHARS if options.grammar is None else GRAMMAR_LIMIT_CHARS
        if len(text) > allowed:
            raise UsageError(f"{option} has {len(text)} characters; {allowed} are allowed")
        if self._tokenizer is None:
            self._tokenizer = guarded(
                llguidance.LLTokenizer, self._content.decode(), eos_token=self._stop_ids or None
            )

        def compiled() -> Any:
            source = (
                llguidance.LLMatcher.grammar_from_json_schema(text, {"whitespace_pattern": WHITESPACE})
                if options.grammar is None
                else llguidance.LLMatcher.grammar_from_lark(text)
            )
            limits = llguidance.LLParserLimits(verbose_errors=False, max_grammar_size=SYMBOLS_LIMIT)
            return llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=limits)

        matcher, error = _with_stack(compiled, max(STACK_BYTES, STACK_CHAR_BYTES * len(text)))
        if matcher is not None and matcher.is_error():
            error = str(matcher.get_error())
        if error:
            raise UsageError(f"{option} can't be used: {' '.join(error.split())[:300]}")
        return Guide(matcher, self._tokenizer.vocab_size)


class Guide:
    """Constraint on the next tokens of one generation."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._mask = np.zeros((vocabulary + 31) // 32, np.int32)

    @property
    def ended(self) -> bool:
        """Return whether the text is complete: no token may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self, vocabulary: int) -> Array:
        """bool [vocabulary]: the tokens that may follow; one at least.

        Raises:
            UsageError: the grammar became too complex.
        """
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")[:vocabulary].astype(bool)
        if self._matcher.is_error() or not bits.any():
            raise _too_complex()
        return bits if bits.size == vocabulary else np.pad(bits, (0, vocabulary - bits.size))

    def push(self, token: int) -> None:
        """Go on by a token that is allowed.

        Raises:
            UsageError: the grammar became too complex.
        """
        if not self._matcher.consume_token(token):
            raise _too_complex()


_stack_size = threading.Lock()
"""Around ``threading.stack_size``, which is of the whole process."""


def _with_stack(call: Callable[[], Any], size_bytes: int) -> tuple[Any, str]:
    """Call in a thread with a stack of its own, and return the value and what went wrong, "" if nothing."""
    outcomes: list[tuple[Any, str]] = []

    def run() -> None:
        try:
            outcomes.append((call(), ""))
        except BaseException as problem:  # a panic of the package is no Exception
            outcomes.append((None, str(problem) or type(problem).__name__))

    thread = threading.Thread(target=run, name="edgekit-grammar", daemon=True)
    with _stack_size:
        try:
            before = threading.stack_size(size_bytes)
        except ValueError:  # Windows has at most 256 MB
            return None, f"it needs a stack of {size_bytes >> 20} MB; make it shorter"
        try:
            thread.start()
        except RuntimeError:
            return None, f"not enough memory for a stack of {size_bytes >> 20} MB; make it shorter"
        finally:
            threading.stack_size(before)
    thread.join()
    return outcomes[0]


def _too_complex() -> UsageError:
    # Without the package's own text, which may quote the answer.
    return UsageError(
        "the schema or the grammar allows no further token here, or is too complex; simplify it"
    )


def _json(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as problem:
        raise UsageError(f"json_schema is not valid JSON: {problem}") from None
