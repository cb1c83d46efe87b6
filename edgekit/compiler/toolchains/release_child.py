"""The child's end of an engine's release (answering.py runs it): a target's own ``run.py``, loaded by path.

Its Python has the engine and numpy. The folders of EdgeKit and of the target are not on its path: beside them
may be a newer engine.
"""

import importlib
import importlib.util
import os
import sys
from typing import Any

_OPENED: dict[str, Any] = {}


def answer(request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Import the engine, open the files of a variant, or run them once on the arrays of in.npz, which are
    numbered."""
    for name, path in request.get("packages", {}).items():
        _load_package(name, path)
    import numpy

    from edgekit.errors import EdgeKitError

    try:
        if request["do"] == "import":
            _OPENED["engine"] = importlib.import_module(request["module"])
            return {"version": _OPENED["engine"].engine_version()}
        if request["do"] == "open":
            return _open(request, folder)
        with numpy.load(os.path.join(folder, "in.npz"), allow_pickle=False) as arrays:
            feeds = {name: arrays[f"arr_{index}"] for index, name in enumerate(request["inputs"])}
        outputs = _OPENED["runner"].run(feeds)
        numpy.savez(os.path.join(folder, "out.npz"), *outputs.values())
        return {"outputs": list(outputs)}
    except EdgeKitError as problem:
        return {"refused": str(problem)}


def _open(request: dict[str, Any], folder: str) -> dict[str, Any]:
    from pathlib import Path

    from edgekit.target.registry import open_ready
    from edgekit.tensor_spec import specs_of

    inputs, outputs = specs_of(request["inputs"]), specs_of(request["outputs"])
    files = {name: Path(folder, "files", name) for name in request["files"]}
    _OPENED["runner"] = open_ready(
        _OPENED["engine"], files, inputs, outputs, request["options"], request["threads"]
    )
    return {"precision": _OPENED["runner"].precision, "device": _OPENED["runner"].device}


def _load_package(name: str, path: str) -> None:
    """Import a package from its folder, without what else lies beside it."""
    if name in sys.modules:
        return
    initial = os.path.join(path, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, initial, submodule_search_locations=[path])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
