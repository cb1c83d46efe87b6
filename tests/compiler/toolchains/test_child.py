"""A process in a toolchain's environment: what it answers, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.compiler.toolchains.child import ToolchainChild
from edgekit.compiler.toolchains.environment import Environment
from edgekit.errors import EngineError
from edgekit.system import confinement

SCRIPT = """
import os
import socket
import time

import demo_compiler

asked = []


def answer(request, folder):
    asked.append(request["do"])
    if request["do"] == "compile":
        with open(os.path.join(folder, "in.txt")) as file:
            text = file.read()
        with open(os.path.join(folder, "out.txt"), "w") as file:
            file.write(demo_compiler.compiled(text))
        print("what compilers print is no answer")
        return {"asked": asked}
    if request["do"] == "fail":
        raise ValueError("no such op")
    if request["do"] == "die":
        os.write(2, b"compiler: out of cheese\\n")
        os._exit(3)
    if request["do"] == "wait":
        time.sleep(3600)
    if request["do"] == "write":
        open(request["path"], "w")
    if request["do"] == "connect":
        socket.create_connection(("127.0.0.1", 9))
    if request["do"] == "look":
        return {"home": os.environ["HOME"], "python_path": os.environ.get("PYTHONPATH")}
    return [1]
"""


@pytest.fixture
def child(environment: Environment, tmp_path: Path) -> Iterator[ToolchainChild]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    with ToolchainChild(environment, script) as child:
        yield child


def test_it_answers_and_keeps_what_it_has_loaded(child: ToolchainChild) -> None:
    (child.folder / "in.txt").write_text("relu", "utf-8")
    assert child.ask({"do": "compile"}, 300) == {"asked": ["compile"]}
    assert (child.folder / "out.txt").read_text("utf-8") == "RELU"
    assert child.ask({"do": "compile"}, 300) == {"asked": ["compile", "compile"]}
    assert "what compilers print is no answer" in child.output_end()


def test_what_it_raises_is_one_line_and_the_next_request_is_answered(child: ToolchainChild) -> None:
    with pytest.raises(EngineError, match=r"^the toolchain demo failed: ValueError: no such op$"):
        child.ask({"do": "fail"}, 300)
    assert "Traceback" in child.output_end()
    (child.folder / "in.txt").write_text("a", "utf-8")
    assert child.ask({"do": "compile"}, 300)["asked"] == ["fail", "compile"]


def test_its_death_and_its_last_words(child: ToolchainChild) -> None:
    with pytest.raises(EngineError) as problem:
        child.ask({"do": "die"}, 300)
    assert str(problem.value) == (
        "the process of the toolchain demo exited with code 3; its last line: compiler: out of cheese"
    )
    assert "out of cheese" in child.output_end()  # its folder is gone


def test_one_that_takes_too_long_is_ended(child: ToolchainChild) -> None:
    child.ask({"do": "look"}, 300)
    with pytest.raises(EngineError, match=r"^the process of the toolchain demo took more than 0\.2 s"):
        child.ask({"do": "wait"}, 0.2)


def test_what_is_no_object_is_no_answer(child: ToolchainChild) -> None:
    with pytest.raises(EngineError, match="the toolchain demo sent an invalid response"):
        child.ask({"do": "nothing"}, 300)


def test_it_sees_nothing_of_this_process_s_python(child: ToolchainChild) -> None:
    assert child.ask({"do": "look"}, 300) == {"home": str(child.folder), "python_path": None}


def test_it_has_no_network_and_writes_only_to_its_folder(child: ToolchainChild, tmp_path: Path) -> None:
    kept = confinement.effective_limits()
    if kept.get("files") or kept.get("network"):
        pytest.skip(f"this system does not confine processes: {kept}")
    for request in ({"do": "write", "path": str(tmp_path / "x")}, {"do": "connect"}):
        with pytest.raises(EngineError, match="PermissionError"):
            child.ask(request, 300)
    assert not (tmp_path / "x").exists()
