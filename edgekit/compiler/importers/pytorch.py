"""PyTorch: modules and exported programs from Python, ``.pt2`` and TorchScript files, and pickles of modules.

``torch.export`` and ``torch.onnx.export(dynamo=True)`` make the ONNX model; TorchScript has only the older
exporter. Checked with torch 2.13 and onnxscript 0.7.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.file_kinds import PT2, TORCH_PICKLE, TORCHSCRIPT, FileKind, file_kind
from edgekit.compiler.importers.original import Original, Samples, convert_object, renamed_outputs, serialized
from edgekit.compiler.importers.torch_archives import checked_program, checked_script
from edgekit.compiler.importers.torch_forms import (
    fake_quantize_shapes,
    masks_as_passed,
    missing_forms,
    plain_fake_quantize,
    with_static_forms,
)
from edgekit.compiler.model.model_kinds import encoder_decoder_advice
from edgekit.errors import MissingDependency, ModelError, UsageError, need_package
from edgekit.tensor_spec import Array

INSTALL = "pip install torch onnxscript"
FORMAT = "PyTorch"
EXPORT_LINE = 'torch.export.save(torch.export.export(module.eval(), (example,)), "model.pt2")'
"""What makes a file without code of a module."""
HEAD_BYTES = 16


def recognize(head: bytes, path: Path) -> bool:
    """Return whether the file is a ``.pt2``, a TorchScript archive, or a torch pickle not of Ultralytics'."""
    kind = file_kind(head, path)
    if kind.has("ultralytics"):
        return False
    if kind.kind == "pickle":
        return kind.has("torch") and not kind.has("sklearn")
    return kind.kind in (PT2, TORCHSCRIPT, TORCH_PICKLE)


def recognize_object(model: object) -> bool:
    """Return whether the object is a module or an exported or scripted one, not Keras' or Ultralytics'."""
    classes = [(cls.__module__, cls.__name__) for cls in type(model).__mro__]
    if any(module.startswith(("keras.", "ultralytics.engine.")) for module, _ in classes):
        return False
    bases = {("torch.nn.modules.module", "Module"), ("torch.export.exported_program", "ExportedProgram")}
    return bool(bases & set(classes))


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    """Export a file in a child process, an object in this one."""
    if not isinstance(source, Path):
        return convert_object(partial(_original, source, options), type(source).__name__)
    _check_file(source, _kind(source), options)
    return convert_file(__name__, source, options)


def load(path: Path, options: ImportOptions) -> Original:
    kind = _kind(path).kind
    if kind in (PT2, TORCHSCRIPT) and not options.trust_pickle:
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # no way back to full pickles
        checked = checked_program if kind == PT2 else checked_script
        path = checked(path, Path.cwd() / f"{path.stem}{'.pt2' if kind == PT2 else '.pt'}")
    torch = _torch()
    if kind == PT2:
        return _original(torch.export.load(path), options)
    if kind == TORCHSCRIPT:
        return _scripted(torch.jit.load(path, map_location="cpu").eval(), options, path.name)
    loaded = torch.load(path, map_location="cpu", weights_only=False)
    module = _module_in(loaded)
    if module is None:
        raise ModelError(f"{path.name} contains a {type(loaded).__name__}, not a torch.nn.Module")
    return _original(module, options)


def _kind(path: Path) -> FileKind:
    with path.open("rb") as file:
        return file_kind(file.read(HEAD_BYTES), path)


def _check_file(path: Path, kind: FileKind, options: ImportOptions) -> None:
    if kind.kind in (PT2, TORCHSCRIPT):
        return
    if not kind.kind:
        raise ModelError(
            f"{path.name}: was not written by torch.export.save, torch.jit.save or torch.save, or is damaged"
        )
    if kind.is_tensors_only:
        raise ModelError(
            f"{path.name} contains weights but no graph (a state dict); EdgeKit needs the whole module. In "
            "Python: module.load_state_dict(torch.load(...)), then edgekit.build(module, "
            f"example_inputs=(example,), targets=[...]); for the command line: {EXPORT_LINE}"
        )
    options.need_trust(path, "a Python pickle of a PyTorch module", f"save it without code: {EXPORT_LINE}")


def _torch() -> Any:
    with need_package("torch", "importing PyTorch models", INSTALL):
        import torch
    return torch


def _need_onnxscript() -> None:
    from importlib.util import find_spec

    if find_spec("onnxscript") is None:
        raise MissingDependency("onnxscript", "torch.onnx.export", "pip install onnxscript")


def _module_in(unpickled: object) -> Any:
    """Return the module in a pickle: the object itself, or an entry with a name that training scripts use."""
    torch = _torch()
    if isinstance(unpickled, torch.nn.Module):
        return unpickled
    if isinstance(unpickled, Mapping):
        for name in ("ema", "model", "module", "net", "network"):
            if isinstance(unpickled.get(name), torch.nn.Module):
                return unpickled[name]
    return None


def _original(model: Any, options: ImportOptions) -> Original:
    torch = _torch()
    _need_onnxscript()
    if isinstance(model, torch.jit.ScriptModule):
        return _scripted(model.eval(), options, type(model).__name__)
    if isinstance(model, torch.export.ExportedProgram):
        return Original(partial(_export, model), partial(_run_program, model), "torch.onnx")
    examples, keywords = _examples(model, options)
    programs: list[Any] = []

    def trace() -> Converted:
        with _evaluating(model), masks_as_passed(torch), plain_fake_quantize(torch, model), torch.no_grad():
            programs[:] = [torch.export.export(model, examples, keywords)]
        return _export(programs[0])._replace(example=_example(programs[0], examples, keywords, options))

    def export() -> Converted:
        try:
            try:
                return trace()
            except Exception:
                attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
                if attention in (None, "eager") or not hasattr(model, "set_attn_implementation"):
                    raise
                model.set_attn_implementation("eager")  # torch.onnx can't decompose T5's other one
                try:
                    return trace()
                finally:
                    with contextlib.suppress(ValueError):  # a part of the model has this one alone
                        model.set_attn_implementation(attention)
        except Exception as problem:
            if reason := _untraceable(model, problem):
                raise ModelError(f"{type(model).__name__}: {reason}") from None
            raise

    def run(samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
        tree = torch.utils._pytree
        leaves, spec = tree.tree_flatten((examples, keywords))
        if not programs:
            with _evaluating(model), masks_as_passed(torch), torch.no_grad():
                programs.append(torch.export.export(model, examples, keywords))
        names = _input_names(programs[0])
        answers = []
        for sample in samples:
            tensors = iter(
                [torch.from_numpy(np.array(sample[name])) if name in sample else None for name in names]
            )
            new = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            new = [leaf if value is None else value for leaf, value in zip(leaves, new, strict=True)]
            with _evaluating(model), torch.no_grad():
                args, kwargs = tree.tree_unflatten(new, spec)
                result = model(*args, **kwargs)
            answers.append(_arrays(result, outputs))
        return FrameworkOutputs(f"PyTorch {torch.__version__}", answers)

    return Original(export, run, "torch.export")


def _untraceable(model: Any, problem: Exception) -> str:
    """Return why torch.export can't trace a module, and what to do, for known causes; "" for others."""
    if "data-dependent" in str(problem):
        return (
            f"a branch or a size depends on the values of a tensor{_line_of(problem)}, which torch.export "
            "can't trace: write the branch with torch.where, or keep that part outside the module"
        )
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) and hasattr(config, "vocab_size"):  # detectors have none
        return encoder_decoder_advice()
    if hasattr(model, "can_generate") and model.can_generate():
        return (
            "is a language model: save it with save_pretrained(FOLDER) and pass the folder; or, for its "
            "scores of one text, set model.config.use_cache = False first"
        )
    codes = (getattr(type(part).forward, "__code__", None) for part in model.modules())
    if any(code is not None and "pack_padded_sequence" in code.co_names for code in codes):
        return (
            "packs its sequences (pack_padded_sequence), which torch.export can't trace: pass the padded "
            "sequences to the recurrent layer as they are, in a copy of forward for the export"
        )
    return ""


def _line_of(problem: Exception) -> str:
    """Return the innermost line of the user's code in a traceback, in parentheses; "" without one."""
    packages = [
        str(Path(module.__file__).parent)
        for module in map(sys.modules.get, ("torch", "edgekit"))
        if module is not None and module.__file__
    ]
    lines = [
        f" ({Path(frame.filename).name}, line {frame.lineno})"
        for frame in traceback.extract_tb(problem.__traceback__)
        if not frame.filename.startswith((*packages, "<"))
    ]
    return lines[-1] if lines else ""


def _export(program: Any) -> Converted:
    torch = _torch()
    # Without gradients, as traced: attention has other strides if it may need one.
    with torch.no_grad(), fake_quantize_shapes(torch):
        onnx_program = torch.onnx.export(
            with_static_forms(torch, program),
            (),
            dynamo=True,
            verbose=False,
            custom_translation_table=missing_forms(torch),
        )
    proto = onnx_program.model_proto
    renamed_outputs(proto, _output_names(program))
    _without_traces(proto)
    return Converted(serialized(proto))


def _without_traces(proto: Any) -> None:
    """Remove the exporter's traces: lines and paths of the user's sources, which devices would get."""
    graph = proto.graph
    for element in [graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer]:
        del element.metadata_props[:]


def _run_program(
    program: Any, samples: Samples, inputs: Sequence[str], outputs: Sequence[str]
) -> FrameworkOutputs:
    torch = _torch()
    tree = torch.utils._pytree
    module, names = program.module(), _input_names(program)
    answers = []
    for sample in samples:
        leaves = [torch.from_numpy(np.array(sample[name])) if name in sample else None for name in names]
        args, kwargs = tree.tree_unflatten(leaves, program.call_spec.in_spec)
        with torch.no_grad():
            answers.append(_arrays(module(*args, **kwargs), outputs))
    return FrameworkOutputs(f"PyTorch {torch.__version__}", answers)


def _input_names(program: Any) -> list[str]:
    return [str(name) for name in program.graph_signature.user_inputs]


def _output_names(program: Any) -> list[str]:
    """Return ``output``, ``output_0`` ..., or the keys of a dictionary."""
    tree = _torch().utils._pytree
    spec = program.call_spec.out_spec
    return _leaf_names(tree.tree_unflatten(list(range(spec.num_leaves)), spec))


def _leaf_names(result: Any) -> list[str]:
    paths, _ = _torch().utils._pytree.tree_flatten_with_path(result)
    names = []
    for path, _ in paths:
        parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        plain = not parts or parts[0].isdigit()
        names.append("_".join(["output", *parts] if plain else parts))
    return names


def _arrays(result: Any, outputs: Sequence[str]) -> dict[str, Array]:
    torch = _torch()
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return {name: leaf.detach().cpu().numpy() for name, leaf in zip(outputs, leaves, strict=True)}


def _examples(module: Any, options: ImportOptions) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the example inputs as tensors, by position and by name, or zeros of the given shapes."""
    torch = _torch()
    example_inputs = options.example_inputs
    if example_inputs is None and options.shapes:
        return tuple(torch.zeros(shape) for shape in options.shapes.values()), {}
    if example_inputs is None:
        raise UsageError(
            f"{type(module).__name__}: torch.export needs example inputs to trace a module. Pass "
            "example_inputs=(torch.zeros(1, 3, 224, 224),), with your shape and dtype, or --shape "
            "1x3x224x224 on the command line"
        )
    if isinstance(example_inputs, torch.Tensor | np.ndarray):
        example_inputs = (example_inputs,)
    tree = torch.utils._pytree
    by_name = isinstance(example_inputs, Mapping)  # a tokenizer's is a class of its own
    as_tensors = tree.tree_map(
        lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf,
        dict(example_inputs) if by_name else tuple(example_inputs),
    )
    return ((), as_tensors) if by_name else (as_tensors, {})


def _example(
    program: Any, examples: tuple[Any, ...], keywords: dict[str, Any], options: ImportOptions
) -> dict[str, Array] | None:
    """Return the user's example by input name, or None for zeros."""
    if options.example_inputs is None:
        return None
    torch = _torch()
    leaves = torch.utils._pytree.tree_leaves((examples, keywords))
    pairs = zip(_input_names(program), leaves, strict=True)
    return {name: leaf.detach().cpu().numpy() for name, leaf in pairs if isinstance(leaf, torch.Tensor)}


@contextlib.contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Set evaluation mode, then restore the mode: dropout in training mode gives random outputs."""
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, mode in modes:
            submodule.training = mode


def _scripted(module: Any, options: ImportOptions, name: str) -> Original:
    """Export TorchScript by the exporter that predates torch.export; the file has no input shapes."""
    torch = _torch()
    names = [item.debugName() for item in module.graph.inputs()][1:]
    values = options.example_inputs
    shapes = options.shapes
    if values is None and (len(shapes) == len(names) == 1 or set(names) == set(shapes)):
        ordered = [next(iter(shapes.values()))] if len(names) == 1 else [shapes[item] for item in names]
        values = tuple(torch.zeros(shape) for shape in ordered)
    if values is None:
        flags = " ".join(f"--shape {item}=1x3x224x224" for item in names)
        raise UsageError(
            f"{name}: TorchScript does not store the shapes of inputs. Add {flags}, with your numbers"
        )
    by_position = [values[name] for name in names] if isinstance(values, Mapping) else values
    examples = tuple(torch.as_tensor(item) for item in by_position)

    def export() -> Converted:
        import io

        import onnx

        file = io.BytesIO()
        torch.onnx.export(module, examples, file, dynamo=False, input_names=names, opset_version=17)
        proto = onnx.ModelProto.FromString(file.getvalue())
        count = len(proto.graph.output)
        renamed_outputs(proto, ["output"] if count == 1 else [f"output_{k}" for k in range(count)])
        return Converted(serialized(proto), ("exported by torch's older exporter, for TorchScript",))

    def run(samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
        answers = []
        for sample in samples:
            feeds = [torch.from_numpy(np.array(sample[input_name])) for input_name in names]
            with torch.no_grad():
                answers.append(_arrays(module(*feeds), outputs))
        return FrameworkOutputs(f"PyTorch {torch.__version__}", answers)

    return Original(export, run, "torch.onnx")


IMPORTER = Importer(
    FORMAT, (".pt2", ".pt", ".pth"), recognize, to_onnx, ("torch", "onnxscript"), recognize_object
)
