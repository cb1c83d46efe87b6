"""EdgeKit: one trained model, verified on every edge engine, in one bundle.

    import edgekit

    bundle = edgekit.build("detector.onnx", targets=["ort", "tflite"], card="card.toml", samples="photos/")
    print(bundle.report)
    bundle.save("detector.edgekit")

    with edgekit.open("detector.edgekit") as session:
        print(session.predict("street.jpg"))

``bench`` measures a bundle and ``verify`` checks it on this machine. Names are loaded when they are first
used, so that the device side never imports the host side.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgekit._version import __version__

if TYPE_CHECKING:
    from edgekit.batch.build_all import build_all as build_all
    from edgekit.bundle.bundle import Bundle as Bundle
    from edgekit.bundle.variant import Variant as Variant
    from edgekit.compiler.accuracy.evaluate import evaluate as evaluate
    from edgekit.compiler.bench.bench_bundle import bench as bench
    from edgekit.compiler.evaluate.verify_bundle import verify as verify
    from edgekit.compiler.model.onnx_file import open_model as open_model
    from edgekit.compiler.pipeline.cascade_bundle import build_cascade as build_cascade
    from edgekit.compiler.pipeline.defer import defer as defer
    from edgekit.compiler.pipeline.distil import distil as distil
    from edgekit.compiler.pipeline.match_labels import match_labels as match_labels
    from edgekit.compiler.sandbox.public import build as build
    from edgekit.compiler.sandbox.public import check as check
    from edgekit.compiler.sandbox.public import draft_card as draft_card
    from edgekit.compiler.sandbox.public import import_model as import_model
    from edgekit.compiler.sandbox.public import shrink as shrink
    from edgekit.diagnostics import Finding as Finding
    from edgekit.errors import EdgeKitError as EdgeKitError
    from edgekit.generate.device.text_session import TextSession as TextSession
    from edgekit.generate.open_session import open as open  # noqa: A004
    from edgekit.processing.card import Card as Card
    from edgekit.processing.card import load_card as load_card
    from edgekit.runtime.session import Session as Session
    from edgekit.target.installed_profiles import find_profile as find_profile
    from edgekit.target.profile import Profile as Profile

_HOME = {
    "Bundle": "edgekit.bundle.bundle",
    "Card": "edgekit.processing.card",
    "EdgeKitError": "edgekit.errors",
    "Finding": "edgekit.diagnostics",
    "Profile": "edgekit.target.profile",
    "Session": "edgekit.runtime.session",
    "TextSession": "edgekit.generate.device.text_session",
    "Variant": "edgekit.bundle.variant",
    "bench": "edgekit.compiler.bench.bench_bundle",
    "build": "edgekit.compiler.sandbox.public",
    "build_all": "edgekit.batch.build_all",
    "build_cascade": "edgekit.compiler.pipeline.cascade_bundle",
    "check": "edgekit.compiler.sandbox.public",
    "defer": "edgekit.compiler.pipeline.defer",
    "distil": "edgekit.compiler.pipeline.distil",
    "draft_card": "edgekit.compiler.sandbox.public",
    "evaluate": "edgekit.compiler.accuracy.evaluate",
    "find_profile": "edgekit.target.installed_profiles",
    "import_model": "edgekit.compiler.sandbox.public",
    "load_card": "edgekit.processing.card",
    "match_labels": "edgekit.compiler.pipeline.match_labels",
    "open": "edgekit.generate.open_session",
    "open_model": "edgekit.compiler.model.onnx_file",
    "shrink": "edgekit.compiler.sandbox.public",
    "verify": "edgekit.compiler.evaluate.verify_bundle",
}

_HABITS = {
    "InferenceSession": "Session",
    "Interpreter": "Session",
    "Model": "open",
    "compile": "build",
    "convert": "build",
    "devices": "edgekit.find_profile(name) describes a target, and `edgekit devices` lists devices",
    "export": "edgekit.Bundle(path).export(variant, folder) writes a variant's files",
    "inspect": "print(edgekit.Bundle(path).report) prints what a bundle has",
    "load": "open",
    "load_model": "open",
    "optimize": "build",
    "predict": "edgekit.open(path).predict(image) predicts",
    "quantize": "edgekit.build(model, targets=..., precision='int8', samples=...) quantizes",
    "report": "edgekit.Bundle(path).report(page) writes one",
    "run": "edgekit.open(path).run(arrays) runs a bundle",
    "serve": "`edgekit serve BUNDLE` serves a bundle",
    "save": "edgekit.build returns a bundle, which save(path) writes",
    "targets": "edgekit.find_profile(name) describes a target, and `edgekit targets` lists them",
}
"""Names that people try -> ours."""

_HOST = {
    "bench": "measuring a bundle",
    "build": "building a model",
    "build_all": "building a catalogue",
    "check": "checking a model",
    "defer": "joining classifiers",
    "distil": "distilling a model",
    "evaluate": "evaluating a model",
    "import_model": "importing a model",
    "match_labels": "joining a model and its labels",
    "open_model": "opening a model",
    "shrink": "shrinking a model",
    "verify": "verifying a bundle",
}
_HOST_PACKAGES = {
    "flatbuffers": "flatbuffers",
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "onnxruntime": "onnxruntime",
}
"""Import name -> pip's name of what the host side can't do without."""

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise _unknown(name)
    if name in _HOST:
        _need_host_packages(_HOST[name])
    return getattr(import_module(_HOME[name]), name)


def _unknown(name: str) -> AttributeError:
    if name.startswith("__"):  # of Python's own machinery
        return AttributeError(f"module 'edgekit' has no attribute {name!r}")
    from edgekit.errors import suggestion  # here: only a wrong name needs it

    hint = suggestion(name, __all__, _HABITS)
    return AttributeError(f"module 'edgekit' has no attribute {name!r}{hint}")


def _need_host_packages(doing: str) -> None:
    """Say what to install before an import deep in the host side fails, or one in the middle of a build.

    Raises:
        MissingDependency: a package of the extra ``build`` is not installed.
    """
    from importlib.util import find_spec  # here: the device side has no use for it

    for module, package in _HOST_PACKAGES.items():
        if find_spec(module) is None:
            from edgekit.errors import MissingDependency

            raise MissingDependency(package, doing, extra="build")


def __dir__() -> list[str]:
    return __all__
