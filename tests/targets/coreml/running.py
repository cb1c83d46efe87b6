"""Small MIL programs by coremltools' builder, written as packages and read by our executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgekit_coreml.interpreter.execute import Executor
from edgekit_coreml.interpreter.program import read_package
from edgekit_coreml.package import FORMAT_OF_IOS, SPECIFICATION, WEIGHTS, package_files
from edgekit_coreml.vendor import coremltools

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array


def program(make: Callable[[Any, Mapping[str, Any]], Any], inputs: Mapping[str, Array], ios: int = 17) -> Any:
    """The program of ``make(builder, inputs)``, which returns its outputs."""
    tools = coremltools()
    from coremltools.converters.mil.mil import Builder, Function, Program, types

    given = {
        name: Builder.placeholder(shape=array.shape, dtype=types.numpy_type_to_builtin_type(array.dtype))
        for name, array in inputs.items()
    }
    with Function(given, opset_version=getattr(tools.target, f"iOS{ios}")) as function:
        made = make(Builder, function.inputs)
        function.set_outputs(list(made) if isinstance(made, (tuple, list)) else [made])
    whole = Program()
    whole.add_function("main", function)
    return whole


def executor(
    make: Callable[[Any, Mapping[str, Any]], Any],
    inputs: Mapping[str, Array],
    folder: Path,
    ios: int = 17,
) -> Executor:
    """``make``'s program, through a package on the disk."""
    files = package_files(program(make, inputs, ios), FORMAT_OF_IOS[ios], {})
    paths = write_files(Artifact(files), folder)
    return Executor(read_package(paths[SPECIFICATION], paths.get(WEIGHTS)))


def compiled(path: Path, precision: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Artifact:
    """A model's package, through the product's own path."""
    from edgekit_coreml.compile import compile_model

    model = open_model(path, shapes)
    run_passes(model)
    return compile_model(model, find_profile("coreml"), precision)
