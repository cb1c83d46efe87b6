"""Checks of PyTorch archives, run before torch loads them.

torch's loaders run code of a ``.pt2`` in more than one way: pickles (``torch.load`` falls back to full
unpickling), expressions of shapes (SymPy evaluates them as Python), guards and names (they become Python
source), operators by any name, and libraries of AOTInductor. torch only gets a copy of members, names and
operators that are known to be data. Examples, guards and traces are not copied. TorchScript is compiled by a
parser of its own and runs no Python; its operators that read or write files are rejected.
Checked with torch 2.13.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from edgekit.compiler.importers.zip_members import Members, open_members
from edgekit.errors import ModelError
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Json

PROGRAM, SAMPLE_INPUTS = "models/model.json", "data/sample_inputs/model.pt"
WEIGHTS, CONSTANTS = "data/weights/", "data/constants/"
OLD_PROGRAM, OLD_SAMPLE_INPUTS = "serialized_exported_program.json", "serialized_example_inputs.pt"
"""Members of archives of torch 2.7 and older: weights are pickles of tensors, loaded with weights_only."""
OLD_PICKLES = ("serialized_state_dict.pt", "serialized_constants.pt")
TENSOR_NAMES = frozenset(
    {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"}
)
"""Globals that a pickle of tensors may import, besides classes such as ``torch.FloatStorage``."""
NAME_LIMIT_CHARS, EXPRESSION_LIMIT_CHARS = 2000, 4000

_PLAIN = ("archive_format", "archive_version", "byteorder", ".data/version", "version")
_PAYLOAD = re.compile(rf"{WEIGHTS}weight_\d+|{CONSTANTS}tensor_\d+")
_STORAGE = re.compile(r"torch\.\w+Storage")
_OTHER_IMPORTS = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")
_NAME = re.compile(r"[\w.@:+\-]*")
_IMPORTED = ("collections.defaultdict", "__enum__")
"""Containers for which torch imports a module by name."""
_SYMBOL = re.compile(r"[a-z]{1,6}\d+|-?[\d.]+(e[+-]?\d+)?")
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|torchvision|torchaudio)\.\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan|wrap_with_set_grad_enabled"
    r"|wrap_with_autocast|flex_attention)"
    r"|torch\._?sym_\w+|math\.\w+"
    r"|_operator\.(add|and_|eq|floordiv|ge|getitem|gt|le|lshift|lt|mod|mul|ne|neg|or_|pos|pow|rshift|sub|truediv)"
)
_FILES = re.compile(r"\b(from_file|save)\b")
_FUNCTIONS = re.compile(
    "FloorDiv|ModularIndexing|Where|PythonMod|Mod|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|RShift"
    "|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|IsNonOverlappingAndDenseIndicator|TruncToFloat|TruncToInt|RoundToInt"
    "|RoundDecimal|ToFloat|Identity|Max|Min|Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not|Abs|floor|ceiling|Piecewise|Add|Mul|Pow"
    "|Integer|Float|Rational|Symbol|Equality|Unequality|GreaterThan|LessThan|StrictGreaterThan|StrictLessThan|true|false"
)
_EXPRESSION_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.keyword,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_SCRIPT = re.compile(
    r"code/(\w+/)*\w+\.py(\.debug_pkl)?|(data|constants)\.pkl|(data|constants)/\d+|version|byteorder|\.data/\w+"
)
_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_OCTAL = re.compile(r"\\[0-3x]")
_SCRIPT_DANGER = re.compile(
    r"\b(from_file|load_tensor|rpc_\w+)\b|\.save\(|torch\.classes\.(?!quantized\b|xnnpack\b)\w+"
)
_SCRIPT_NAMESPACE = re.compile(r"(?<![\w.])(?:torch\b(?!\.[A-Za-z_])|ops\b(?!\.\w+\.\w))")


def checked_program(path: Path, target: Path) -> Path:
    """Write a copy of a ``.pt2`` that holds nothing but data.

    Raises:
        ModelError: torch would run something of it.
    """
    with open_members(path) as members:
        entries: dict[str, bytes | None] = {name: None for name in _PLAIN if name in members.by_name}
        if OLD_PROGRAM in members.by_name:
            entries[OLD_PROGRAM] = _checked_graph(path, members.read(OLD_PROGRAM))
            entries[OLD_SAMPLE_INPUTS] = b""
            for name in OLD_PICKLES:
                entries[name] = _checked_tensors(members, name)
            return members.copy(target, entries, "")
        entries[PROGRAM] = _checked_graph(path, members.read(PROGRAM))
        entries[SAMPLE_INPUTS] = b""
        for prefix in (WEIGHTS, CONSTANTS):
            entries.update(_payloads(members, prefix))
        return members.copy(target, entries)


def checked_script(path: Path, target: Path) -> Path:
    """Write a copy of a TorchScript archive whose code neither reads nor writes files.

    Raises:
        ModelError: it does, or has objects of classes that may.
    """
    with open_members(path) as members:
        entries: dict[str, bytes | None] = {name: None for name in members.by_name if _SCRIPT.fullmatch(name)}
        for name in entries:
            if name.endswith(".py"):
                _check_code(path, name, members.read(name).decode("utf-8", "replace"))
            elif name.endswith(".pkl"):
                for text in _names_of(path, name, members.read(name)):
                    _check_code(path, name, text)
        return members.copy(target, entries)


def _refusal(path: Path, description: str) -> ModelError:
    return ModelError(
        f"{path.name}: {description}. Such a file may run code or change files. If you trust its author, add "
        "--trust-pickle"
    )


def _payloads(members: Members, prefix: str) -> dict[str, bytes | None]:
    """Return the weights or constants: raw numbers with a table, or pickles of tensors in older files."""
    if f"{prefix}model.pt" in members.by_name:
        return {f"{prefix}model.pt": _checked_tensors(members, f"{prefix}model.pt")}
    table = f"{prefix}model_{'weights' if prefix == WEIGHTS else 'constants'}_config.json"
    entries: dict[str, bytes | None] = {table: members.read(table)}
    for entry in _json(members.path, table, entries[table] or b"").get("config", {}).values():
        name = f"{prefix}{entry['path_name']}"
        if entry["use_pickle"] or not _PAYLOAD.fullmatch(name):
            raise _refusal(members.path, f"{brief(name)} is a Python pickle or an object, not tensor data")
        entries[name] = None
    return entries


def _checked_tensors(members: Members, name: str) -> bytes:
    """Return the content of a member that ``torch.save`` wrote, after a check that it holds only tensors."""
    content = members.read(name)
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        pickles = [pickle_name for pickle_name in inner.namelist() if pickle_name.endswith(".pkl")]
        for pickle_name in pickles:
            for text in _names_of(members.path, name, inner.read(pickle_name)):
                if text not in TENSOR_NAMES and not _STORAGE.fullmatch(text):
                    raise _refusal(members.path, f"{name} is a Python pickle that imports {brief(text)}")
    if len(pickles) != 1:
        raise _refusal(members.path, f"{name} holds {len(pickles)} Python pickles")
    return content


def _names_of(path: Path, member: str, content: bytes) -> Iterator[str]:
    """Yield names of the classes and functions that a pickle of torch's imports, ``module.name``."""
    stream = io.BytesIO(content)
    try:
        while stream.tell() < len(content):
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name == "GLOBAL":
                    yield str(argument).replace(" ", ".")
                elif opcode.name in _OTHER_IMPORTS:
                    raise _refusal(path, f"{member} is a Python pickle with the opcode {opcode.name}")
    except (ValueError, UnicodeDecodeError, IndexError) as problem:
        raise ModelError(f"{path.name}: {member} is damaged: {problem}; save the model again") from None


def _json(path: Path, member: str, content: bytes) -> Json:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise ModelError(
            f"{path.name}: {member} is not valid JSON: {problem}; save the model again"
        ) from None


def _checked_graph(path: Path, content: bytes) -> bytes:
    """Return the program without guards and traces, after a check of all its texts."""
    program = _json(path, PROGRAM, content)
    try:
        program.pop("guards_code", None)
        program["graph_module"]["metadata"] = {}
        _check_value(path, "", program)
        return json.dumps(program).encode()
    except (RecursionError, KeyError, TypeError, AttributeError, SyntaxError) as problem:
        kind = type(problem).__name__
        raise ModelError(
            f"{path.name}: {PROGRAM} does not have the form that torch writes ({kind}: {problem})"
        ) from None


def _check_value(path: Path, key: str, value: Json) -> None:
    """Check all texts below a key; the notes of nodes are emptied in place."""
    if isinstance(value, dict):
        if "target" in value and "metadata" in value:
            value["metadata"] = {}
        for name, item in value.items():
            if key == "range_constraints":
                _check_expression(path, name)
            else:
                _check_name(path, name)
            _check_value(path, name, item)
    elif isinstance(value, list):
        for item in value:
            _check_value(path, key, item)
    elif not isinstance(value, str) or key in ("as_string", "as_strings"):
        return  # numbers, and arguments of operators, which are written as literals
    elif key in ("target", "as_operator"):
        if not _OPERATOR.fullmatch(value) or _FILES.search(value):
            raise _refusal(path, f"its graph calls {brief(value)}, which is not a known tensor operator")
    elif key == "expr_str":
        _check_expression(path, value)
    elif key in ("in_spec", "out_spec"):
        _check_structure(path, key, value)
    else:
        _check_name(path, value)


def _check_name(path: Path, name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_LIMIT_CHARS:
        raise _refusal(path, f"its graph has the name {brief(name)}")


def _check_expression(path: Path, text: str) -> None:
    """Check an expression of shapes, which torch gives to Python's eval."""
    if len(text) > EXPRESSION_LIMIT_CHARS:
        raise _refusal(path, f"its graph has an expression of {len(text)} characters")
    for node in ast.walk(ast.parse(text, mode="eval")):
        is_allowed = isinstance(node, _EXPRESSION_NODES)
        if isinstance(node, ast.Call):
            is_allowed = isinstance(node.func, ast.Name)
        elif isinstance(node, ast.Name):
            is_allowed = bool(_FUNCTIONS.fullmatch(node.id) or _SYMBOL.fullmatch(node.id))
        elif isinstance(node, ast.Constant):
            is_allowed = isinstance(node.value, int | float) or (
                isinstance(node.value, str) and bool(_SYMBOL.fullmatch(node.value))
            )
        if not is_allowed:
            raise _refusal(path, f"its graph has the expression {brief(text)}")


def _check_structure(path: Path, key: str, text: str) -> None:
    """Check how inputs or outputs are nested: JSON with classes of containers and keys of mappings."""
    pending = [_json(path, key, text.encode())]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            if value.startswith(("[", "{")):
                pending.append(_json(path, key, value.encode()))
            elif not _NAME.fullmatch(value) or value in _IMPORTED:
                raise _refusal(path, f"its {key} has {brief(value)}")
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += [*value, *value.values()]


def _check_code(path: Path, member: str, text: str) -> None:
    """Check TorchScript for operators on files, by any way to name them: ``getattr`` is one."""
    code = _LITERAL.sub("\0", text)
    danger = _SCRIPT_DANGER.search(text)
    if danger is not None:
        raise _refusal(path, f"{member} has {brief(danger[0])}, which may read or write files")
    if _SCRIPT_NAMESPACE.search(code):
        raise _refusal(path, f"{member} uses the namespace of all operators as a value")
    if "getattr" in code and ("'" in code or re.search("\0\\s*\0", code) or _OCTAL.search(text)):
        raise _refusal(path, f"{member} builds attribute names at run time")
