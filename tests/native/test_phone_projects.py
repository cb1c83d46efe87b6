"""Sources for Android and iPhone: what can be checked without their SDKs."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.native import build
from edgekit.native.project import MODEL
from tests.native.kotlin_compiler import FLAGS, KOTLIN_VERSION, WRAPPER, compile_kotlin

KOTLIN, SWIFT = build.FOLDER / "kotlin", build.FOLDER / "swift"
HEADER = (build.INCLUDE / "edgekit.h").read_text("utf-8")
NUMBERS = {"INPUTS": 0, "OUTPUTS": 1, "VARIANTS": 2, "RANK_LIMIT": 16}


def test_kotlin_and_jni_have_the_same_functions() -> None:
    declared = re.findall(r"external fun (\w+)\((.*?)\)", (WRAPPER / "Native.kt").read_text("utf-8"))
    defined = re.findall(
        r"^NATIVE\(\w+, (\w+)(.*?)\) \{", (KOTLIN / "jni.cpp").read_text("utf-8"), re.MULTILINE
    )
    arguments = {name: text.count(":") for name, text in declared}
    assert len(arguments) == 17
    assert {name: text.count(",") for name, text in defined} == arguments


def test_numbers_and_functions_are_the_header_s() -> None:
    native = (WRAPPER / "Native.kt").read_text("utf-8")
    assert {name: int(value) for name, value in re.findall(r"const val (\w+) = (\d+)", native)} == NUMBERS
    header = HEADER.replace("EDGEKIT_", "")
    assert "enum { INPUTS, OUTPUTS, VARIANTS," in header
    assert "enum { RGB, BGR };" in header
    assert "#define RANK_LIMIT 16" in header
    assert "enum class ChannelOrder { RGB, BGR }" in (WRAPPER / "Results.kt").read_text("utf-8")
    results = (SWIFT / "wrapper/Sources/EdgeKit/Results.swift").read_text("utf-8")
    assert re.search(r"case rgb = 0\s+case bgr = 1", results)
    for path in SWIFT.rglob("*.swift"):
        for name in re.findall(r"\b(edgekit_\w+)", path.read_text("utf-8")):
            assert re.search(rf"\b{name}\b", HEADER), (path, name)


@pytest.mark.needs_kotlin
def test_the_android_project_has_no_syntax_error(tmp_path: Path) -> None:
    """Without Android's classes, in EDGEKIT_ANDROID_JAR, errors of other kinds are expected.

    Debian's libandroid-23-java (bullseye, sid) has them. AndroidX is declared in the folder androidx.
    """
    androidx = (Path(__file__).parent / "androidx").glob("*.kt")
    screens = [*WRAPPER.glob("*.kt"), *(KOTLIN / "app").rglob("*.kt"), *androidx]
    android = os.environ.get("EDGEKIT_ANDROID_JAR")
    if android:
        assert compile_kotlin(screens, tmp_path / "classes", [*FLAGS, "-cp", android]) == ""
    scripts = [tmp_path / f"{path.parent.name}.kts" for path in (KOTLIN / "app").rglob("*.gradle.kts")]
    for path, script in zip((KOTLIN / "app").rglob("*.gradle.kts"), scripts, strict=True):
        shutil.copyfile(path, script)
    broken = tmp_path / "broken.kts"
    broken.write_text('plugins { id("x')
    flags = ["-no-reflect", "-Xallow-any-scripts-in-source-roots"]
    messages = compile_kotlin([*screens, *scripts, broken], tmp_path / "classes", flags)
    errors = [line for line in messages.splitlines() if "syntax error" in line]
    assert errors
    assert all(line.startswith(str(broken)) for line in errors), errors
    for script in scripts:
        assert f"{script}:1:1: error: unresolved reference" in messages or "import" in script.read_text()


def test_the_gradle_files_agree() -> None:
    root = (KOTLIN / "app/build.gradle.kts").read_text("utf-8")
    assert f'id("org.jetbrains.kotlin.android") version "{KOTLIN_VERSION}"' in root
    plugins = set(re.findall(r'id\("(.*?)"\)', root))
    modules = list((KOTLIN / "app").glob("*/build.gradle.kts"))
    used = {name for path in modules for name in re.findall(r'id\("(.*?)"\)', path.read_text("utf-8"))}
    assert used == plugins
    settings = (KOTLIN / "app/settings.gradle.kts").read_text("utf-8")
    assert {f'":{path.parent.name}"' for path in modules} == set(re.findall(r'":\w+"', settings))
    sdk = [re.findall(r"(?:minSdk|compileSdk) = (\d+)", path.read_text("utf-8")) for path in modules]
    assert sdk == [["35", "26"], ["35", "26"]]
    app = (KOTLIN / "app/app/build.gradle.kts").read_text("utf-8")
    assert f'noCompress += "{MODEL.rpartition(".")[2]}"' in app
    properties = (KOTLIN / "app/gradle/wrapper/gradle-wrapper.properties").read_text("utf-8")
    version, digest = re.findall(r'(?:gradleVersion|distributionSha256Sum) = "(.*?)"', root)
    assert f"distributions/gradle-{version}-bin.zip\n" in properties
    assert f"distributionSha256Sum={digest}\n" in properties


def test_the_android_manifest_names_the_screens() -> None:
    namespace = "{http://schemas.android.com/apk/res/android}"
    manifest = ET.parse(KOTLIN / "app/app/src/main/AndroidManifest.xml")
    activity, camera = manifest.iter("activity")
    for each in (activity, camera):
        name = each.get(f"{namespace}name", "")[1:]
        screen = KOTLIN / "app/app/src/main/kotlin/org/edgekit/app" / f"{name}.kt"
        assert f"class {name} : " in screen.read_text("utf-8")
    (permission,) = manifest.iter("uses-permission")
    assert permission.get(f"{namespace}name") == "android.permission.CAMERA"
    assert [action.get(f"{namespace}name") for action in activity.iter("action")] == [
        "android.intent.action.MAIN"
    ]


def references(value: Any) -> Iterator[str]:
    """Yield the identifiers of objects in a part of an Xcode project."""
    if isinstance(value, str) and re.fullmatch("[0-9A-F]{24}", value):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from references(one)


def test_the_xcode_project_holds_together() -> None:
    project = plistlib.loads((SWIFT / "app/App.xcodeproj/project.pbxproj").read_bytes())
    objects = project["objects"]
    named = {reference for one in objects.values() for reference in references(one)} | {project["rootObject"]}
    assert named == set(objects)
    kinds = {one["isa"]: one for one in objects.values()}
    assert (SWIFT / "app" / kinds["PBXFileSystemSynchronizedRootGroup"]["path"] / "App.swift").is_file()
    package = (SWIFT / "wrapper/Package.swift").read_text("utf-8")
    assert kinds["XCLocalSwiftPackageReference"]["relativePath"] == "EdgeKit"
    assert f'products: [.library(name: "{kinds["XCSwiftPackageProductDependency"]["productName"]}"' in package
    lowest = {
        one["buildSettings"].get("IPHONEOS_DEPLOYMENT_TARGET")
        for one in objects.values()
        if "buildSettings" in one
    }
    assert lowest - {None} == {"16.0"}
    assert ".iOS(.v16)" in package


def swift_errors(source: bytes) -> list[tuple[int, str]]:
    """Return the line and text of what a grammar of Swift does not read."""
    tree_sitter = pytest.importorskip("tree_sitter")
    language = tree_sitter.Language(pytest.importorskip("tree_sitter_swift").language())
    nodes, errors = [tree_sitter.Parser(language).parse(source).root_node], []
    while nodes:
        node = nodes.pop()
        nodes.extend(node.children)
        if node.type == "ERROR" or node.is_missing:
            errors.append((node.start_point[0] + 1, node.text.decode()))
    return errors


@pytest.mark.parametrize("path", sorted(SWIFT.rglob("*.swift")), ids=lambda path: path.name)
def test_swift_is_parsed(path: Path) -> None:
    source = path.read_bytes()
    assert swift_errors(source) == []
    assert swift_errors(source.replace(b"(", b"", 1)) != []
