"""PyTorch's archives that would run code when torch loads them, made without torch."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.compiler.importers.torch_archives import checked_program, checked_script
from edgekit.errors import EdgeKitError, ModelError
from edgekit.system.python_calls import in_python
from tests.fixtures.framework_files import (
    TENSORS,
    Trap,
    archive,
    exported_program,
    opcodes,
    program,
    torchscript,
)

TRUST = ". Such a file may run code or change files. If you trust its author, add --trust-pickle"
WEIGHTS = "data__weights__model_weights_config.json"
CONSTANTS = "data__constants__model_constants_config.json"
FORWARD = "class M(Module):\n  def forward(self: __torch__.M, x: Tensor) -> Tensor:\n"


def saved(content: bytes) -> bytes:
    """What ``torch.save`` writes, of a pickle."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as inner:
        inner.writestr("archive/data.pkl", content)
    return file.getvalue()


def table(**changed: Any) -> bytes:
    meta = {"path_name": "weight_0", "is_param": True, "use_pickle": False}
    return json.dumps({"config": {"w": {**meta, **changed}}}).encode()


def graph(change: Callable[[dict[str, Any]], object]) -> bytes:
    made = program()
    change(made)
    return json.dumps(made).encode()


def node(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["graph_module"]["graph"]["nodes"][0]
    return found


def sizes(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]
    return found


def signature(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["graph_module"]["module_call_graph"][0]["signature"]
    return found


def structure(kind: str, context: object) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


DEFAULT = {"default_factory_module": "os", "default_factory_name": "getcwd", "dict_context": []}
ENUM = '{"__enum__": true, "fqn": "os:environ", "name": "x"}'
CALLED = "its graph calls {}, which is not a known tensor operator"
PICKLED = "{} is a Python pickle or an object, not tensor data"

PROGRAMS: dict[str, tuple[dict[str, bytes], str]] = {
    "a weight that is a pickle": (
        {WEIGHTS: table(use_pickle=True)},
        PICKLED.format("'data/weights/weight_0'"),
    ),
    "an object of a class of C++": (
        {CONSTANTS: table(path_name="custom_obj_0")},
        PICKLED.format("'data/constants/custom_obj_0'"),
    ),
    "any object": (
        {CONSTANTS: table(path_name="opaque_obj_0", use_pickle=True)},
        PICKLED.format("'data/constants/opaque_obj_0'"),
    ),
    "weights of an older form": (
        {"data__weights__model.pt": saved(pickle.dumps(Trap(Path("x")), 2))},
        "data/weights/model.pt is a Python pickle that imports 'io.open'",
    ),
    "weights of an older form, newer opcodes": (
        {"data__weights__model.pt": saved(pickle.dumps(Trap(Path("x")), 4))},
        "data/weights/model.pt is a Python pickle with the opcode STACK_GLOBAL",
    ),
    "an expression of Python": (
        {"models__model.json": graph(lambda made: sizes(made).update(expr_str="__import__('os').getcwd()"))},
        """its graph has the expression "__import__('os').getcwd()\"""",
    ),
    "a text that is evaluated again": (
        {"models__model.json": graph(lambda made: sizes(made).update(expr_str="Symbol('a b')"))},
        """its graph has the expression "Symbol('a b')\"""",
    ),
    "an expression as a key": (
        {"models__model.json": graph(lambda made: made["range_constraints"].update({"exit(1)": {}}))},
        "its graph has the expression 'exit(1)'",
    ),
    "a function of Python": (
        {"models__model.json": graph(lambda made: node(made).update(target="torch.os.system"))},
        CALLED.format("'torch.os.system'"),
    ),
    "an operator on files": (
        {
            "models__model.json": graph(
                lambda made: node(made).update(target="torch.ops.aten.from_file.default")
            )
        },
        CALLED.format("'torch.ops.aten.from_file.default'"),
    ),
    "an operator as an argument": (
        {
            "models__model.json": graph(
                lambda made: node(made)["inputs"][0].update(arg={"as_operator": "torch.hub.load"})
            )
        },
        CALLED.format("'torch.hub.load'"),
    ),
    "a name that is a line of Python": (
        {
            "models__model.json": graph(
                lambda made: node(made)["outputs"][0]["as_tensor"].update(name="x = exit()\n")
            )
        },
        "its graph has the name 'x = exit()\\n'",
    ),
    "a parameter that is code": (
        {"models__model.json": graph(lambda made: signature(made).update(forward_arg_names=["x=exit()"]))},
        "its graph has the name 'x=exit()'",
    ),
    "a module to import": (
        {
            "models__model.json": graph(
                lambda made: signature(made).update(in_spec=structure("collections.defaultdict", DEFAULT))
            )
        },
        "its in_spec has 'collections.defaultdict'",
    ),
    "an enumeration to import": (
        {
            "models__model.json": graph(
                lambda made: signature(made).update(out_spec=structure("builtins.dict", ENUM))
            )
        },
        "its out_spec has '__enum__'",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_would_run_code(name: str, tmp_path: Path) -> None:
    members, what = PROGRAMS[name]
    path = exported_program(tmp_path / "m.pt2", **members)
    with pytest.raises(ModelError) as error:
        checked_program(path, tmp_path / "copy.pt2")
    assert str(error.value) == f"m.pt2: {what}{TRUST}"
    assert not (tmp_path / "copy.pt2").exists()


def test_what_torch_is_given_of_a_program(tmp_path: Path) -> None:
    hostile = {
        "data__sample_inputs__model.pt": saved(pickle.dumps(Trap(Path("x")))),
        "data__aotinductor__model__model.so": b"\x7fELF",
        "extra__notes.txt": b"x",
    }
    path = exported_program(tmp_path / "m.pt2", **hostile)
    copied = checked_program(path, tmp_path / "copy.pt2")
    with zipfile.ZipFile(copied) as found:
        assert sorted(found.namelist()) == [
            "model/archive_format",
            "model/archive_version",
            "model/byteorder",
            "model/data/constants/model_constants_config.json",
            "model/data/sample_inputs/model.pt",
            "model/data/weights/model_weights_config.json",
            "model/data/weights/weight_0",
            "model/models/model.json",
        ]
        assert found.read("model/data/sample_inputs/model.pt") == b""
        given = json.loads(found.read("model/models/model.json"))
    assert "guards_code" not in given
    assert {each["target"]: each["metadata"] for each in given["graph_module"]["graph"]["nodes"]} == {
        "torch.ops.aten.linear.default": {},
        "torch.ops.aten.einsum.default": {},
    }


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_program_of_torch_2_7(protocol: int, tmp_path: Path) -> None:
    members = {
        "version": b"8.7",
        "serialized_exported_program.json": json.dumps(program()).encode(),
        "serialized_state_dict.pt": saved(opcodes(*TENSORS)),
        "serialized_constants.pt": saved(b"\x80\x02}."),
        "serialized_example_inputs.pt": saved(pickle.dumps(Trap(Path("x")))),
    }
    path = archive(tmp_path / "m.pt2", members)
    with zipfile.ZipFile(checked_program(path, tmp_path / "copy.pt2")) as found:
        assert found.read("serialized_example_inputs.pt") == b""
    members["serialized_constants.pt"] = saved(pickle.dumps(Trap(Path("x")), protocol))
    with pytest.raises(ModelError, match=r"^m\.pt2: serialized_constants\.pt is a Python pickle "):
        checked_program(archive(path, members), tmp_path / "copy.pt2")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}", "models/model.json does not have the form that torch writes (KeyError: 'graph_module')"),
        (b"[" * 100_000, "models/model.json is not valid JSON: "),
        (b"{", "models/model.json is not valid JSON: "),
    ],
)
def test_a_damaged_program(content: bytes, why: str, tmp_path: Path) -> None:
    path = exported_program(tmp_path / "m.pt2", models__model=b"", **{"models__model.json": content})
    with pytest.raises(ModelError) as error:
        checked_program(path, tmp_path / "copy.pt2")
    assert str(error.value).startswith(f"m.pt2: {why}")


def test_a_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m/constants.pkl", b"\x80\x02).")
        file.writestr("m/code/__torch__.py", b" " * (100 << 20))
    with pytest.raises(
        ModelError, match=r"^m\.pt: the archive's members have \d+ bytes uncompressed; a file of this size"
    ):
        checked_script(path, tmp_path / "copy.pt")


def test_two_members_of_one_name(tmp_path: Path) -> None:
    path = torchscript(tmp_path / "m.pt")
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(path, "a") as file,
    ):
        file.writestr("m/code/__torch__.py", FORWARD)
    with pytest.raises(ModelError, match=r"^m\.pt: two members of the archive have the same name"):
        checked_script(path, tmp_path / "copy.pt")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('y = torch.from_file("v", True, 2)', "'from_file', which may read or write files"),
        ('y = ops.aten.from_file("v", True, 2)', "'from_file', which may read or write files"),
        ('y = "v".from_file(True, 2)', "'from_file', which may read or write files"),
        ('y = getattr(torch, "from_file")("v", True, 2)', "'from_file', which may read or write files"),
        ('torch.save(x, "v")', "'.save(', which may read or write files"),
        ('x.save("v")', "'.save(', which may read or write files"),
        ("t = __torch__.torch.classes.c10d.FileStore", "'torch.classes.c10d', which may read or write files"),
        ("t = torch", "the namespace of all operators as a value"),
        ('y = getattr(ops.aten, "a")', "the namespace of all operators as a value"),
        ('y = getattr(x, "from" "_file")', "attribute names at run time"),
        ('y = getattr(x, "fr\\157m_file")', "attribute names at run time"),
        ("y = getattr(x, 'a')", "attribute names at run time"),
    ],
)
def test_torchscript_that_would_use_files(line: str, what: str, tmp_path: Path) -> None:
    path = torchscript(tmp_path / "m.pt", f"{FORWARD}    {line}\n    return x\n")
    with pytest.raises(ModelError) as error:
        checked_script(path, tmp_path / "copy.pt")
    verb = "has" if "which" in what else "builds" if "run time" in what else "uses"
    assert str(error.value) == f"m.pt: code/__torch__.py {verb} {what}{TRUST}"


def test_torchscript_of_layers(tmp_path: Path) -> None:
    lines = (
        '    _0 = getattr(self.layers, "0")\n'
        '    _1 = torch.pad(torch.conv2d(x, _0.weight), [1, 1], "reflect")\n'
        '    ops.prim.RaiseException("no \\"torch\\" tensor\\n")\n'
        "    return torch.add(ops.torchvision.nms(_1, x, 0.5), x)\n"
    )
    copied = checked_script(torchscript(tmp_path / "m.pt", FORWARD + lines), tmp_path / "copy.pt")
    with zipfile.ZipFile(copied) as found:
        assert sorted(found.namelist()) == [
            "model/code/__torch__.py",
            "model/constants.pkl",
            "model/data.pkl",
            "model/version",
        ]


@pytest.mark.parametrize("verb", ["import", "check", "build"])
def test_no_verb_loads_them(verb: str, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    opaque = pickle.dumps(Trap(sprung))
    members = {
        CONSTANTS: table(path_name="opaque_obj_0", use_pickle=True),
        "data__constants__opaque_obj_0": opaque,
    }
    path = exported_program(tmp_path / "m.pt2", **members)
    does: dict[str, Callable[[], object]] = {
        "import": lambda: edgekit.import_model(path),
        "check": lambda: edgekit.check(path),
        "build": lambda: edgekit.build(path, targets=["ort"]),
    }
    with pytest.raises(EdgeKitError) as error:
        does[verb]()
    assert (
        str(error.value) == f"m.pt2: {PICKLED.format(repr('data/constants/opaque_obj_0'))}{in_python(TRUST)}"
    )
    assert not sprung.exists()
