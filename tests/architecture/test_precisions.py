"""A precision is a row: code asks the row of a precision, and compares no names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from edgekit.target.precisions import TABLE

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset(row.name for row in TABLE)
DTYPES = frozenset({"int8", "int4", "bf16", "fp16"})
"""Names that are also element types and instruction sets: they count where the other side is a precision."""
EXPORTED = frozenset({"AUTO", "FULL_PRECISION"})
"""Constants of the table that may be compared with: a request for several, and the source's precision."""


def _texts(node: ast.expr) -> set[str]:
    """Return the strings of a constant, or of a tuple, list or set of constants."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _is_precision(node: ast.expr) -> bool:
    """Whether an expression reads a precision, e.g. ``variant.precision`` or ``options["precision"]``."""
    text = ast.unparse(node)
    return text not in EXPORTED and ("precision" in text.lower() or text == "form.name")


def _constants(tree: ast.Module) -> dict[str, set[str]]:
    """Return the strings of the module's constants by name."""
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({t.id: _texts(node.value) for t in targets if isinstance(t, ast.Name)})
    return found


def _compared(tree: ast.Module, constants: dict[str, set[str]]) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each comparison with a name, and of each look at a part of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            own = NAMES & set().union(*map(_texts, sides))
            named = {side.id for side in sides if isinstance(side, ast.Name)} - EXPORTED
            bound = NAMES & set().union(*(constants.get(name, set()) for name in named))
            if own - DTYPES or ((own or bound) and any(map(_is_precision, sides))):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith") and _is_precision(node.func.value):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Match) and _is_precision(node.subject):
            yield node.lineno, f"match {ast.unparse(node.subject)}"


def _listed(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each tuple, list, set or table that holds two precisions by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            parts = [key for key in node.keys if key] if isinstance(node, ast.Dict) else node.elts
            texts = {part.value for part in parts if isinstance(part, ast.Constant)} & NAMES
            if len(texts) > 1 and texts & {"fp32", "fp8", "fp16-arithmetic"} | texts - DTYPES:
                yield node.lineno, ast.unparse(node)


def _found(sources: dict[str, str]) -> list[str]:
    trees = {name: ast.parse(text) for name, text in sources.items()}
    constants: dict[str, set[str]] = {}
    for tree in trees.values():
        for name, texts in _constants(tree).items():
            constants[name] = constants.get(name, set()) | texts
    return [
        f"{name}:{line}: {text}"
        for name, tree in trees.items()
        for line, text in sorted({*_compared(tree, constants), *_listed(tree)})
    ]


def test_no_line_of_the_core_compares_a_precision_s_name() -> None:
    """The table alone holds the names. A question that no field of a row answers is a new field."""
    table = ROOT / "edgekit/target/precisions.py"
    files = [path for path in sorted((ROOT / "edgekit").rglob("*.py")) if path != table]
    assert len(files) > 100
    assert _found({str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}) == []


def test_no_target_takes_a_precision_s_name_apart() -> None:
    """A target declares its precisions by name, and asks the row for what the name seems to say."""
    found = []
    for path in sorted((ROOT / "targets").rglob("*.py")):
        lines = _compared(ast.parse(path.read_text("utf-8")), {})
        found += [f"{path.name}: {text}" for _, text in lines if "swith(" in text]
    assert found == []
