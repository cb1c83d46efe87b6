"""The templates of samples/platforms: their commands are valid, and the two runtimes serve a bundle."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from edgekit.cli import main
from tests.fixtures.classifiers import classifiers, vectors

FOLDER = Path(__file__).parents[2] / "samples" / "platforms"


def commands() -> dict[str, list[str]]:
    """The command line of ``edgekit serve`` in each file."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text("utf-8")
        if path.suffix in (".yaml", "") and (args := re.search(r"(?:args:|CMD) (\[.*\])", text)):
            found[path.name] = json.loads(args[1])
        elif path.suffix == ".service":
            found[path.name] = shlex.split(text.partition("ExecStart=")[2].partition("\n")[0])
        elif path.name == "greengrass.json":
            script = json.loads(text)["Manifests"][0]["Lifecycle"]["Run"]["Script"]
            found[path.name] = shlex.split(script.replace("{configuration:/port}", "8080"))
    return found


def test_every_template_is_listed_and_serves() -> None:
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [path.name for path in FOLDER.glob("*.*") if f"`{path.name}`" not in readme] == ["README.md"]
    found = commands()
    assert set(found) == {"Dockerfile", "detector.service", "greengrass.json", "knative.yaml", "kserve.yaml"}
    serve = main.get_command(click.Context(main), "serve")
    assert serve is not None
    for name, line in found.items():
        parameters: dict[str, Any] = serve.make_context("serve", line[line.index("serve") + 1 :]).params
        (bundle,) = parameters["bundles"]
        assert re.fullmatch(r"detector=.*/detector\.edgekit", bundle), name
        is_loopback = parameters["listen"] == "127.0.0.1:8080"
        assert parameters["behind_proxy"] != is_loopback, name
        assert (parameters["token_file"] is None) == is_loopback, name


def test_the_files_have_their_form() -> None:
    recipe = json.loads((FOLDER / "greengrass.json").read_text("utf-8"))
    assert recipe["RecipeFormatVersion"] == "2020-01-25"
    modules = json.loads((FOLDER / "iotedge.json").read_text("utf-8"))["modulesContent"]["$edgeAgent"]
    settings = modules["properties.desired"]["modules"]["detector"]["settings"]
    assert json.loads(settings["createOptions"])["HostConfig"]["CapDrop"] == ["ALL"]
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    for name in ("kserve.yaml", "knative.yaml", "docker-compose.yml"):
        assert yaml.safe_load((FOLDER / name).read_text("utf-8")), name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = (FOLDER / "detector.service").read_text("utf-8")
    (tmp_path / "detector.service").write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "detector.service"],
        capture_output=True,
        check=False,
    )
    assert b"detector.service" not in done.stderr


def sample(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.needs_ort
def test_mlserver_runs_a_bundle(tmp_path: Path) -> None:
    mlserver = pytest.importorskip("mlserver", reason="MLServer is not installed")
    runtime = sample("mlserver_runtime")
    small, _ = classifiers(tmp_path)
    parameters = mlserver.settings.ModelParameters(uri=str(small), extra={"deadline_ms": 9000.0})
    kind = runtime.EdgeKitRuntime
    settings = mlserver.settings.ModelSettings(name="net", implementation=kind, parameters=parameters)
    model = kind(settings)

    async def ask() -> Any:
        await model.load()
        codec = runtime.NumpyCodec.encode_input("x", vectors(1)[0]["x"])
        reply = await model.predict(runtime.InferenceRequest(inputs=[codec]))
        await model.unload()
        return reply

    assert [output.name for output in asyncio.run(ask()).outputs] == ["scores"]


@pytest.mark.needs_ort
def test_ray_serve_runs_a_bundle(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed")
    from starlette.requests import Request

    replica = sample("ray_serve").Detector.func_or_class(str(classifiers(tmp_path)[0]))
    data = vectors(1)[0]["x"].ravel().tolist()
    body = {"inputs": [{"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": data}]}

    async def ask(content: bytes) -> Any:
        async def receive() -> Any:
            return {"type": "http.request", "body": content}

        return await replica(Request({"type": "http", "headers": []}, receive))

    reply = asyncio.run(ask(json.dumps(body).encode()))
    assert (reply.status_code, json.loads(reply.body)["outputs"][0]["name"]) == (200, "scores")
    assert asyncio.run(ask(b"{")).status_code == 400
    asyncio.run(replica.check_health())
    replica._served.close()
