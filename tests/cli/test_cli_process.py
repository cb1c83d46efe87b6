"""The command line as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from edgekit._version import __version__
from edgekit.cli import main
from edgekit.cli.command_group import all_verbs
from tests.fixtures.child_processes import run_python


def test_the_quantizer_s_products_run_on_one_thread_unless_somebody_says(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "import edgekit.cli\n"
        "assert 'numpy' not in sys.modules\n"
        "try:\n    edgekit.cli.main(['targets'])\n"
        "finally:\n    print(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    for given, expected in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        around = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        found = run_python(code, env={**around, **given}, check=True)
        assert found.stdout.splitlines()[-1] == expected


def test_the_package_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "edgekit", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"edgekit, version {__version__}\n"


def test_the_shell_completes_engines_and_profiles() -> None:
    words = [("run m.edgekit --engine o", "openvino ort"), ("build m.onnx -t rp", "rpi5-ncnn rpi4 rpi5")]
    for given, expected in words:
        line = f"edgekit {given}".split()
        around = {
            **os.environ,
            "_EDGEKIT_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        }
        code = "from edgekit.cli import main; main(prog_name='edgekit')"
        found = run_python(code, env=around, check=True)
        assert [row.split(",")[1] for row in found.stdout.split()] == expected.split()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mo", "model"),
        ("model ", "import card shrink distil"),
        ("release publish --stop", "--stop-installs"),
        ("build --max", "--max-drop"),
        ("build -t rpi", "rpi5-ncnn rpi4 rpi5"),
        ("model shrink -t open", "openvino"),
        ("explain m.edgekit open", "openvino"),
    ],
)
def test_groups_options_targets_and_profiles_are_completed(
    given: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *words, incomplete = given.split(" ")
    shell = BashComplete(main, {}, "edgekit", "_EDGEKIT_COMPLETE")
    found = [item.value for item in shell.get_completions(words, incomplete)]
    assert found == expected.split()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", ["bench BUNDLE --variant", "explain BUNDLE"])
def test_variants_of_the_bundle_are_completed(words: str, bundle: Path) -> None:
    shell = BashComplete(main, {}, "edgekit", "_EDGEKIT_COMPLETE")
    given = [str(bundle) if word == "BUNDLE" else word for word in words.split()]
    assert [item.value for item in shell.get_completions(given, "ort-")] == ["ort-fp32"]


@pytest.mark.parametrize("verb", all_verbs())
def test_files_and_folders_are_completed(verb: str) -> None:
    command = all_verbs()[verb]
    context = click.Context(command)
    for parameter in command.params:
        if (
            re.search("PATH|FILE|DIR|BUNDLE|MODEL", parameter.make_metavar(context))
            and parameter.name != "device"
        ):
            kinds = {item.type for item in parameter.shell_complete(context, "")}
            assert kinds & {"file", "dir"}, parameter.name


@pytest.mark.skipif(os.name != "posix", reason="a pipe that breaks")
def test_a_reader_that_has_seen_enough_gets_no_traceback() -> None:
    """As ``edgekit targets | head`` does: the pipe's other end is closed."""
    read, write = os.pipe()
    os.close(read)
    code = "from edgekit.cli import main; main(['targets', '--json'])"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
