"""``edgekit.open``: the session of a bundle, whatever it holds."""

from __future__ import annotations

import os
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from edgekit.bundle.bundle import Bundle, opened
from edgekit.errors import suggestion
from edgekit.processing.generation import is_generation
from edgekit.runtime.session import Session
from edgekit.system.python_calls import public

if TYPE_CHECKING:
    from edgekit.generate.device.text_session import TextSession

    class AnySession(Session, TextSession):  # type: ignore[misc]
        """A Session, or the TextSession of a language model: type checkers know the names of both."""


@public
def open(  # noqa: A001
    bundle: str | os.PathLike[str] | Bundle,
    *,
    engine: str | None = None,
    variant: str | None = None,
    strict: bool = False,
    threads: int | None = None,
    **options: Any,
) -> AnySession:
    """Open a bundle to run it, with its best variant that works here.

    Args:
        bundle: A path, or an open bundle, which is not closed.
        engine: The engine to try first, e.g. ``"tflite"``.
        variant: The variant to try first, by its name in the bundle, e.g. ``"tflite-int8"``.
        strict: Fail instead of falling back to another variant.
        threads: Threads of one run. None means the cores that this process may use, at most 4.
        options: Further arguments of ``Session``, or of ``TextSession`` if it is a language model.

    Returns:
        A ``Session``; a ``TextSession`` for a language model.

    Raises:
        BundleError: the bundle cannot be opened.
        UsageError: the bundle has no such variant or engine, or an option is out of its range.
        NoVariantError: no variant works here; the message lists every reason.
        TypeError: the session has no such option.
    """
    kind: type[Session | TextSession] = Session
    with opened(bundle) as peeked:
        if is_generation(peeked.card):
            from edgekit.generate.device.text_session import TextSession

            kind = TextSession
    names = signature(kind).parameters
    for name in options.keys() - names.keys():
        raise TypeError(f"open() got an unexpected keyword argument {name!r}{suggestion(name, names)}")
    session = kind(bundle, engine=engine, variant=variant, strict=strict, threads=threads, **options)
    return cast("AnySession", session)
