"""What `edgekit release publish --for` writes, as the platforms' own tools and published schemas read it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from edgekit.cli import main
from edgekit.cli.publish_verb import PLATFORMS as NAMED
from edgekit.errors import UsageError
from edgekit.release.export.platform_files import PLATFORMS, service_of
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call

SCHEMAS = Path(os.environ.get("EDGEKIT_SCHEMAS", "/nonexistent"))
URI = "s3://models/det.edgekit"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    made = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    return made.save(tmp_path / "det.edgekit")


def publish(call: Call, bundle: Path, platform: str, *more: str) -> Path:
    folder = bundle.parent / platform
    extra = ("--bundle-url", URI) if platform == "greengrass" else ()
    done = call(
        "release",
        "publish",
        bundle,
        "--for",
        platform,
        "-o",
        folder,
        "--model",
        "detector",
        *extra,
        *more,
        "--json",
    )
    assert sorted(answer(done)["files"]) == sorted(str(each) for each in folder.iterdir())
    assert (folder / bundle.name).read_bytes() == bundle.read_bytes()
    return folder


def serves(command: list[str], bundle: Path) -> None:
    """The command line of a file is one that `edgekit serve` takes, for the bundle beside it."""
    assert command[:2] == ["edgekit", "serve"] or command[0].endswith("/edgekit")
    serve = main.get_command(click.Context(main), "serve")
    assert serve is not None
    found = serve.make_context("serve", command[2:]).params
    name, _, path = found["bundles"][0].partition("=")
    assert (name, Path(path).name) == ("detector", bundle.name)
    assert re.fullmatch(r"(127\.0\.0\.1|0\.0\.0\.0):8080", found["listen"])


def test_every_platform_is_an_option() -> None:
    assert tuple(PLATFORMS) == NAMED


def test_systemd(call: Call, bundle: Path) -> None:
    folder = publish(call, bundle, "systemd")
    unit = folder / "edgekit-detector.service"
    line = re.search(r"^ExecStart=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    assert line is not None
    serves(shlex.split(line[1]), bundle)
    if shutil.which("systemd-analyze"):
        # Verified as it is, but for the program, which is not installed there.
        unit.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text("utf-8")))
        command = ["systemd-analyze", "verify", "--man=no", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = [line for line in done.stderr.splitlines() if "edgekit" in line]
        assert told == []


def test_greengrass(call: Call, bundle: Path) -> None:
    recipe = json.loads((publish(call, bundle, "greengrass") / "recipe.json").read_text("utf-8"))
    (manifest,) = recipe["Manifests"]
    script = manifest["Lifecycle"]["Run"]["Script"].replace("{configuration:/port}", "8080")
    serves(shlex.split(script), bundle)
    assert manifest["Artifacts"][0]["Uri"] == URI
    valid(lowered(recipe), "recipe_schema.json")


def test_iotedge(call: Call, bundle: Path) -> None:
    folder = publish(call, bundle, "iotedge", "--image", "registry.example/detector:3")
    manifest = json.loads((folder / "deployment.json").read_text("utf-8"))
    modules = manifest["modulesContent"]["$edgeAgent"]["properties.desired"]["modules"]
    settings = modules["detector"]["settings"]
    assert settings["image"] == "registry.example/detector:3"
    assert len(settings["createOptions"]) <= 512, "longer ones are cut by the hub"
    assert json.loads(settings["createOptions"])["HostConfig"]["ReadonlyRootfs"] is True
    container(folder, bundle)
    valid(manifest, "azure-iot-edge-deployment-2.0.json")


def test_balena(call: Call, bundle: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    folder = publish(call, bundle, "balena")
    compose = yaml.safe_load((folder / "docker-compose.yml").read_text("utf-8"))
    assert compose["services"]["detector"]["ports"] == ["127.0.0.1:8080:8080"]
    container(folder, bundle)


def container(folder: Path, bundle: Path) -> None:
    lines = (folder / "Dockerfile").read_text("utf-8").splitlines()
    serves(json.loads(lines[-1].removeprefix("CMD ")), bundle)
    assert any("'edgekit-sdk[serve,ort,tflite]==" in line for line in lines)


def valid(found: Any, schema: str) -> None:
    """By the schema that the platform's makers publish, where it is at hand."""
    if (SCHEMAS / schema).exists():
        jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
        jsonschema.validate(found, json.loads((SCHEMAS / schema).read_text("utf-8")))


def lowered(value: Any) -> Any:
    """Greengrass reads keys in any case; the published schema has them small."""
    if isinstance(value, dict):
        return {key.lower(): lowered(each) for key, each in value.items()}
    return [lowered(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--for", "greengrass", "-o", "out"), "give --bundle-url s3://BUCKET/KEY"),
        (("--for", "systemd"), "give the BUNDLE and -o FOLDER"),
        (("--for", "systemd", "-o", "out", "--model", "a b"), "can't be a service's name"),
        (("--for", "iotedge", "-o", "out", "--image", "a b"), "is not a container image reference"),
        (("--for", "greengrass", "-o", "out", "--bundle-url", "ftp://x"), "is not the URL of a bundle"),
        (("--for", "systemd", "-o", "out", "--channel", "stable"), "--channel does not go with --for"),
        (("-o", "out"), "give --repo and --keys, or --hub or --for"),
        (("--for", "systemd", "-o", "full"), "is not an empty folder"),
    ],
)
def test_mistakes(
    more: tuple[str, ...], why: str, call: Call, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle.parent)
    (bundle.parent / "full").mkdir()
    (bundle.parent / "full" / "x").touch()
    done = call("release", "publish", bundle, *more)
    assert done.exit_code == 2
    assert why in done.stderr
    assert not (bundle.parent / "out").exists()


@pytest.mark.parametrize("name", ["a b", "a\nb", "a'b", 'a"b', "a%n", "a$HOME", "a\\b"])
def test_a_file_whose_name_a_unit_would_read_otherwise(name: str) -> None:
    with pytest.raises(UsageError) as error:
        service_of(small_bundle(), Path(f"{name}.edgekit"))
    named = repr(f"{name}.edgekit")
    assert str(error.value) == f"{named} cannot be used in the command line of a service: rename the file"
