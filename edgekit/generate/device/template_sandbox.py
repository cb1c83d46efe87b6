"""Jinja for templates from strangers: its sandbox, and bounds on what a template does.

Jinja's sandbox keeps a template from Python; it does not keep it from running for ever or from filling the
memory. Here only the filters and methods that templates of chats use are there, and whatever makes a value
longer is counted or limited: loops, calls, filters, operators, and lists and texts that a template writes.
Whatever takes longer with longer values looks at the time.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import sys
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from threading import Lock
from typing import Any

from edgekit.errors import CardError, UsageError, need_package
from edgekit.system.interrupts import pass_on

TEMPLATE_LIMIT_CHARS = 128 << 10
TEXT_LIMIT_CHARS = 4 << 20
STEPS_LIMIT = 200_000
"""Turns of loops, calls, tests, and elements of lists that a template makes."""
MADE_LIMIT_BYTES = 256 << 20
"""All texts and slices that a template makes, also those that it throws away."""
SECONDS_LIMIT = 10.0
"""Processor time of one text: a step may compare, or search, texts of TEXT_LIMIT_CHARS."""
SHORT_CHARS = 1000
"""Most characters that ``strip`` takes off: it looks for each of them at each character."""
FILTERS = (
    "abs capitalize count d default e escape first float int items join last length list lower map reject "
    "rejectattr replace round safe select selectattr string title tojson trim upper"
)
METHODS = (
    "capitalize count endswith find get index items join keys lower lstrip removeprefix removesuffix replace "
    "rfind rsplit rstrip split splitlines startswith strip title upper values"
)
GLOBALS = ("range", "namespace", "dict")
COUNTED, BOUNDED, SLICED, TIMED, WRITTEN = (
    f"edgekit {name}" for name in ("counted", "bounded", "sliced", "timed", "written")
)
"""Names of our filters; with a space in them no template can say them."""

Render = Callable[[Mapping[str, Any]], str]


class _Refusal(Exception):  # noqa: N818
    """``raise_exception``, which templates call where they can't express a chat."""


def compile_template(source: str) -> Render:
    """Compile a template to a function from its variables to its text. Thread-safe.

    The function raises UsageError where the template refuses the messages, and CardError where it fails or
    exceeds the bounds.

    Raises:
        CardError: it is not a template, or uses undefined features.
        MissingDependency: jinja2 is not installed.
    """
    if len(source) > TEMPLATE_LIMIT_CHARS:
        raise CardError(f"the chat template has {len(source)} characters; {TEMPLATE_LIMIT_CHARS} are allowed")
    with need_package("jinja2", "a chat's template", extra="text"):
        import jinja2
    environment, lock = _environment(), Lock()
    environment.begin()  # what is constant is computed here
    try:
        tree = _rewritten(environment.parse(source))
        template = jinja2.Template.from_code(environment, environment.compile(tree), environment.globals)
    except (jinja2.TemplateError, RecursionError, SyntaxError, MemoryError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise CardError(f"the chat template can't be used: {reason}") from None

    def render(values: Mapping[str, Any]) -> str:
        with lock:
            environment.begin()
            pieces, length = [], 0
            try:
                for piece in template.generate(**values):
                    pieces.append(piece)
                    length += len(piece)
                    if length > TEXT_LIMIT_CHARS:
                        raise _too_long()
            except _Refusal as refusal:
                # Only in the template's own words: it may put a message's content into them.
                detail = f": {refusal}" if str(refusal) in source else ""
                raise UsageError(f"the chat template refuses these messages{detail}") from None
            except CardError:
                raise
            except jinja2.TemplateError as problem:
                raise CardError(f"the chat template fails: {' '.join(str(problem).split())[:200]}") from None
            except Exception as problem:  # whatever Python raises in it; the text may quote a message
                pass_on(problem)
                raise CardError(f"the chat template fails: {type(problem).__name__}") from None
        return "".join(pieces)

    return render


def _environment() -> Any:
    from jinja2 import pass_context
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    allowed = frozenset(METHODS.split())

    class TemplateEnvironment(ImmutableSandboxedEnvironment):  # type: ignore[misc]
        """Counts what the template does; :meth:`begin` is called before each text."""

        intercepted_binops = frozenset(["+", "*", "%", "**"])
        left, left_bytes, ends_s = STEPS_LIMIT, MADE_LIMIT_BYTES, 0.0

        def begin(self) -> None:
            self.left, self.left_bytes = STEPS_LIMIT, MADE_LIMIT_BYTES
            self.ends_s = time.thread_time() + SECONDS_LIMIT

        def step(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise CardError(f"the chat template takes more than {STEPS_LIMIT} steps")
            if not self.left & 15:
                self.timed(None)

        def timed(self, value: Any) -> Any:
            """Return the value; the time is not over."""
            if time.thread_time() > self.ends_s:
                raise CardError(f"the chat template takes more than {SECONDS_LIMIT:g} s")
            return value

        def within_memory(self, value: Any) -> Any:
            """Return the value, whose own memory is counted; texts are limited."""
            if isinstance(value, str | list | tuple):
                if isinstance(value, str) and len(value) > TEXT_LIMIT_CHARS:
                    raise _too_long()
                self.left_bytes -= sys.getsizeof(value)
                if self.left_bytes < 0:
                    raise CardError(f"the chat template makes more than {MADE_LIMIT_BYTES >> 20} MB of texts")
            return value

        def sliced(self, value: Any) -> Any:
            self.step()
            return self.within_memory(value)

        def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
            self.step()
            original = getattr(function, "__wrapped__", function)  # Jinja wraps str.format
            owner, name = getattr(original, "__self__", None), getattr(original, "__name__", "")
            if isinstance(owner, str | list | dict | tuple | int | float):
                if name not in allowed:
                    raise CardError(f"the chat template calls {type(owner).__name__}.{name}: not allowed")
                if isinstance(owner, str) and name == "join":
                    return self.bounded(_joined(args[0], owner))
                if isinstance(owner, str) and name == "replace":
                    return self.bounded(_replaced(owner, *args))
                if name.endswith("strip"):
                    _check_short(*args)
            return self.bounded(super().call(context, function, *args, **options))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            if operator == "**" or (operator in "*%" and not numbers):
                raise CardError(f"the chat template uses {operator} on texts, lists or powers: not allowed")
            return self.bounded(super().call_binop(context, operator, left, right))

        def counted(self, values: Iterable[Any]) -> Iterator[Any]:
            for value in values:
                self.step()
                yield value

        def bounded(self, value: Any) -> Any:
            """Return the value, its elements counted and its texts limited."""
            waiting = [value]
            while waiting:
                item = self.within_memory(waiting.pop())
                self.step()
                if isinstance(item, Mapping):
                    waiting += [*item.keys(), *item.values()]
                elif isinstance(item, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
                    waiting += item
                elif isinstance(item, int) and item.bit_length() > 64:
                    raise CardError("the chat template computes a number of more than 64 bits")
            return value

    environment = TemplateEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    overrides: dict[str, Callable[..., Any]] = {
        "join": _joined, "replace": _replaced, "tojson": _json, "round": _rounded, "trim": _trimmed,
    }  # fmt: skip
    filters = {name: overrides.get(name, environment.filters[name]) for name in FILTERS.split()}
    environment.filters = {name: _checked(environment, plain) for name, plain in filters.items()}
    environment.filters |= {COUNTED: environment.counted, BOUNDED: environment.bounded}
    environment.filters |= {SLICED: environment.sliced, TIMED: environment.timed}
    environment.filters[WRITTEN] = pass_context(lambda _, text: environment.sliced(text))  # not when compiled
    environment.tests = {name: _checked(environment, test) for name, test in environment.tests.items()}
    environment.globals = {name: environment.globals[name] for name in GLOBALS}
    environment.globals["namespace"] = type("namespace", (Namespace,), {"__repr__": lambda _: "<namespace>"})
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    environment.finalize = environment.bounded
    return environment


def _checked(environment: Any, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter whose value is counted; what Jinja passes it first stays the same."""

    @functools.wraps(filter_)
    def checked(*args: Any, **options: Any) -> Any:
        return environment.bounded(filter_(*args, **options))

    return checked


def _rewritten(tree: Any) -> Any:
    """Rewrite the tree so that loops count their iterations, and lists, slices and joined texts are limited
    at creation. Plain text is limited too, because a loop may write it many times into a variable."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def filtered(name: str, node: Any) -> Any:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

    class Rewrite(NodeTransformer):  # type: ignore[misc]
        def generic_visit(self, node: Any, *args: Any, **options: Any) -> Any:
            node = super().generic_visit(node, *args, **options)
            if isinstance(node, nodes.For):
                node.iter = filtered(COUNTED, node.iter)
            if isinstance(node, nodes.Compare):
                return filtered(TIMED, node)
            if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
                return filtered(SLICED, node)
            if isinstance(node, nodes.TemplateData):
                return filtered(WRITTEN, nodes.Const(node.data, lineno=node.lineno))
            creates_value = isinstance(node, nodes.Concat | nodes.List | nodes.Dict)
            if creates_value or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
                return filtered(BOUNDED, node)
            return node

    return Rewrite().visit(tree)


# --- filters and functions -------------------------------------------------------------------------------


def _joined(values: Iterable[Any], between: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        values = [item.get(attribute, "") for item in values]
    parts = [_plain(value) for value in values]
    if sum(map(len, parts)) + len(str(between)) * len(parts) > TEXT_LIMIT_CHARS:
        raise _too_long()
    return str(between).join(parts)


def _replaced(text: Any, old: Any, new: Any, count: int = -1) -> str:
    """``replace``, its length known before."""
    text, old, new = _plain(text), _plain(old), _plain(new)
    if len(text) + text.count(old) * len(new) > TEXT_LIMIT_CHARS:
        raise _too_long()
    replaced: str = text.replace(old, new, -1 if count is None else count)
    return replaced


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` as transformers has it: without escapes for HTML."""
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 16):
        raise CardError("the chat template uses tojson with an indent that is not from 0 to 16")
    if separators is not None and not all(isinstance(text, str) and len(text) <= 16 for text in separators):
        raise CardError("the chat template uses tojson with separators of more than 16 characters")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _rounded(value: Any, precision: Any = 0, method: Any = "common") -> Any:
    """``round``, whose powers of ten stay within a float's."""
    from jinja2.filters import do_round

    if not (isinstance(precision, int) and -300 <= precision <= 300):
        raise CardError("the chat template uses round with a precision that is not from -300 to 300")
    return do_round(value, precision, method)


def _trimmed(value: Any, chars: Any = None) -> str:
    _check_short(chars)
    return str(value).strip(chars)


def _check_short(*chars: Any) -> None:
    if any(isinstance(text, str) and len(text) > SHORT_CHARS for text in chars):
        raise CardError(f"the chat template strips any of more than {SHORT_CHARS} characters")


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple | Mapping):
        raise CardError("the chat template joins lists of lists; only texts can be joined")
    return str(value)


def _refuse(message: Any = "") -> None:
    raise _Refusal(str(message)[:200])


def _now(form: Any = "%d %b %Y") -> str:
    if not isinstance(form, str) or len(form) > 64 or re.search("%[^A-Za-z%]", form):
        raise CardError("the chat template uses strftime_now with a form that is not allowed")
    return datetime.datetime.now().strftime(form)


def _too_long() -> CardError:
    return CardError(f"the chat template makes a text of more than {TEXT_LIMIT_CHARS} characters")
