"""Kotlin's compiler, fetched once by npm and checked by its lock file, and programs that it compiles."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from edgekit.native import build
from edgekit.system.cache_folder import cache_folder
from tests.native.library import TEST_FLAGS

WRAPPER = build.FOLDER / "kotlin" / "wrapper"
ON_ANY_JVM = [WRAPPER / name for name in ("Native.kt", "Results.kt", "Session.kt")]
"""Sources of the wrapper that do not need Android's classes."""
KOTLIN_VERSION = "2.2.0"
"""Version in the projects for Android; the wrapper needs no newer language."""
LANGUAGE = KOTLIN_VERSION.rpartition(".")[0]
FLAGS = ("-no-reflect", "-Werror", "-language-version", LANGUAGE, "-api-version", LANGUAGE)
LOCK = Path(__file__).parent / "kotlin" / "kotlin-compiler.lock"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time fill a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def jars() -> Path:
    """Return the folder of the compiler's jars."""
    (row,) = [line for line in LOCK.read_text("utf-8").splitlines() if not line.startswith("#")]
    name, version, integrity = row.split()
    kept = cache_folder() / "tests" / f"{name}-{version}"
    with exclusive(kept):
        if not (kept / "package").is_dir():
            command = ["npm", "pack", f"{name}@{version}", "--silent", "--ignore-scripts"]
            subprocess.run(command, cwd=kept, check=True, timeout=600, capture_output=True)
            package = kept / f"{name}-{version}.tgz"
            digest = hashlib.sha512(package.read_bytes()).digest()
            assert integrity == "sha512-" + base64.b64encode(digest).decode()
            with tempfile.TemporaryDirectory(dir=kept) as draft, tarfile.open(package) as archive:
                archive.extractall(draft, filter="data")
                Path(draft, "package").rename(kept / "package")
            package.unlink()
    return kept / "package" / "lib"


def compile_kotlin(sources: Sequence[Path], to: Path, flags: Sequence[str] = FLAGS) -> str:
    """Compile sources into a folder of classes, and return the compiler's messages; "" where it has none."""
    main = ["-cp", f"{jars()}/*", "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"]
    command = ["java", *main, *flags, "-d", str(to), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout + done.stderr


def compile_program(folder: Path) -> list[str]:
    """Compile the wrapper, its native library and Answers.kt, and return the command that runs it."""
    messages = compile_kotlin([*ON_ANY_JVM, *LOCK.parent.glob("*.kt")], folder / "classes")
    assert messages == ""
    build.compile_library(folder, flags=TEST_FLAGS, jni=True)
    classes = f"{folder / 'classes'}:{jars() / 'kotlin-stdlib.jar'}"
    return ["java", "-Xcheck:jni", f"-Djava.library.path={folder}", "-cp", classes, "AnswersKt"]
