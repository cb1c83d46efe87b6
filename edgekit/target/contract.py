"""The contract of a target: everything that EdgeKit requires of one, and the optional parts.

A target is a package (``targets/edgekit_tflite``) with two modules that this file describes as protocols:

    compile.py   Compiler   host: canonical model -> files                entry-point group edgekit.compilers
                            TARGET = TargetInfo(...): what it compiles, and its optional parts
    run.py       Engine     device: files -> a Runner, numpy + one engine  entry-point group edgekit.runners
                            ENGINE = EngineInfo(...): its optional parts on the device

The entry points are the lazy import: a module is loaded by name, when it is used. A third party adds a target
by installing a package with the same two entry points (docs/add-a-target.md). EdgeKit uses
nothing of a target that is not declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edgekit.tensor_spec import Array, Content, Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.diagnostics import Finding
    from edgekit.target.cost_estimate import CostEstimate
    from edgekit.target.profile import Profile
    from edgekit.target.quant_rules import Rules

    # Defined here because a named tuple compiles its annotations at class creation, part of the cold start.
    RulesFor = Callable[[Profile], Rules]
    Refine = Callable[[ir.Model, Profile, str, "Artifact", Sequence[Mapping[str, Array]]], "Artifact"]
    AppFiles = Callable[
        [Mapping[str, bytes], Mapping[str, Json], Any, Sequence[TensorSpec]], dict[str, bytes]
    ]
    NpuFiles = Callable[[Mapping[str, bytes], str], dict[str, bytes]]
    Estimate = Callable[[Mapping[str, Content], Profile], CostEstimate | None]
    Tools = Callable[[], Sequence[tuple[str, str | None, str]]]
    CompileRange = Callable[[Sequence[ir.Model], Sequence[int], Profile, str], "Artifact"]
    ShareWeights = Callable[["Artifact", Sequence["Artifact"]], tuple["Artifact", list["Artifact"]]]


class Artifact(NamedTuple):
    """The output of a compiler.

    Attributes:
        files: File name -> content: relative paths of plain names, as docs/bundle-format.md has them. Large
            contents may be read-only pages of a temporary file (edgekit/system/scratch_file.py).
        options: Settings for the runner besides the files (I/O names and layouts, pinned precision). JSON.
            ``needs_isa``: instruction sets (``cpu.EXTENSIONS``) of which the processor must have one to
            compute as declared; a session on a processor without them does not take the variant.
        facts: Facts about the compilation for the report (ops, remaining transposes and why). JSON.
            ``notes``: sentences that the report prints.
        tensors: File name -> where its tensors lie, as (offset, size) in bytes: a bundle stores those once
            that several variants have (edgekit/compiler/pipeline/shared_tensors.py).
    """

    files: Mapping[str, Content]
    options: Mapping[str, Json] = MappingProxyType({})
    facts: Mapping[str, Json] = MappingProxyType({})
    tensors: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({})

    @property
    def size_bytes(self) -> int:
        """Return the size of the files; a bundle stores equal ones once."""
        return sum(map(len, set(self.files.values())))


class TargetInfo(NamedTuple):
    """Description of a target, with optional parts of its host side; ``TARGET`` in ``compile.py``.

    Attributes:
        precisions: Precisions of ``compile_model``, e.g. ``("fp32", "fp16")``. Any other is compiled as
            ``fp32``. A model with Q/DQ pairs is compiled as ``fp32``, or as ``int8`` if the target
            treats its float ops differently.
        io_layouts: Layouts that its artifacts can store their inputs and outputs in
            (compiler/lowering/io_layouts.py).
        quantization_rules: ``(profile) -> Rules``: integer operations of the target, or of the device.
            None: the target has no int8.
        refine: ``(model, profile, precision, artifact, samples) -> Artifact``: improves an artifact with
            samples; returns the same artifact if there is no gain. None: not needed.
        app_files: ``(files, options, card, outputs) -> files``: the artifact in the form that the platform's
            own tools take, for ``edgekit export --metadata``; ``card`` is an
            ``edgekit.processing.card.Card``. Raises UsageError if the card can't be expressed.
        npu_files: ``(files, chip) -> files``: further files for the NPU of a chip (``Qualcomm SM8650``), for
            ``edgekit export --npu``. Raises UsageError for an unknown chip, MissingDependency without the
            vendor's SDK, EngineError if its compiler fails.
        instruction_sets: Precision -> instruction sets of which a processor must have one to compute in it;
            the same in ``needs_isa`` of the artifact.
        decoder: Name of a module that compiles language models: ``PRECISIONS``, and
            ``compile_decoder(model, precision, weights, context) -> Artifact``
            (generate/device/decoder.py). "": none.
        deepstream: Name of a module with ``deepstream_files(files, options, card, title) -> (files, notes)``:
            a detector's model and configuration for NVIDIA DeepStream. It raises UsageError if DeepStream
            can't do what the card says. "": none.
        estimate: ``(files, profile) -> CostEstimate | None``: estimate by the vendor's own tool of the cost
            on the profile's device (target/cost_estimate.py); None for a profile that it does not know.
            It is shown as estimated by that tool. Raises MissingDependency if the tool is not installed,
            EngineError if it rejects the files: the variant is kept, with the reason.
        share_weights: ``(largest, further) -> (largest, further)``: artifacts of a model at its largest
            shape and at further ones, with weights stored once. Files equal to one of the largest's are
            shared with it; the largest's files are usable alone. None means that each shape has its own
            weights.
        compile_range: ``(models, sizes, profile, precision) -> Artifact``: one artifact for every size of a
            range, from the model at some of them, ascending (compiler/lowering/shape_range.py). Raises
            EngineError if what differs between the sizes does not follow from the size. None means that the
            target takes listed shapes only.
        stores_rows: Whether a product's matrix is stored as [outputs, inputs], so that it can be shared with
            an embedding of which rows are gathered; else columns of [inputs, outputs] are.
        shared_range: Whether products of ``int8-dynamic`` round all rows of their input by one scale.
        reference_executor: Computes the artifact's files on a machine without the engine; its runners have
            ``stands_in_for``. None means that a variant that can't run is marked ``not run``.
    """

    precisions: tuple[str, ...]
    io_layouts: tuple[str, ...] = ("nchw",)
    quantization_rules: RulesFor | None = None
    refine: Refine | None = None
    app_files: AppFiles | None = None
    npu_files: NpuFiles | None = None
    reference_executor: Engine | None = None
    instruction_sets: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    decoder: str = ""
    deepstream: str = ""
    estimate: Estimate | None = None
    share_weights: ShareWeights | None = None
    compile_range: CompileRange | None = None
    stores_rows: bool = False
    shared_range: bool = False


class Compiler(Protocol):
    """The host side of a target: the module ``compile.py``. It never modifies the model that is passed in."""

    TARGET: TargetInfo

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        """Report the nodes that will not run or will leave the fast path, without compiling."""

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """Compile the canonical model.

        Raises:
            UnsupportedError: the target cannot express some nodes; all are named, and nothing was lowered.
            MissingDependency: a tool that compiles for this target is not installed.
        """


class Runner(Protocol):
    """One loaded variant. Not safe for concurrent calls: a Session holds a lock around it."""

    device: str
    """What it runs on, as the engine names it, e.g. ``CPU``."""
    precision: str
    """The precision of the arithmetic, e.g. ``fp32``."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. ``feeds`` holds every input, C-contiguous, of the declared dtype and shape.

        The arrays returned have the source model's names, dtypes, shapes and layouts, and belong to the
        caller: a later call of ``run`` does not overwrite them.
        """

    def facts(self) -> dict[str, Json]:
        """Return facts that only the loaded engine knows, e.g. the nodes that its delegate did not take."""

    def close(self) -> None:
        """Free the engine's memory. The runner is not used afterwards."""


def stands_in_for(runner: Runner) -> str:
    """Return the device that a runner replaces, e.g. ``Apple hardware``; "" for an engine on its device.

    Runners of a reference executor have the attribute ``stands_in_for``, and those of an engine that
    emulates its device. They compute the artifact's files on any machine: their outputs verify the files,
    but their times say nothing of the device.
    """
    return str(getattr(runner, "stands_in_for", ""))


class TritonForm(NamedTuple):
    """Configuration of NVIDIA's Triton Inference Server for a target's artifacts.

    https://github.com/triton-inference-server/backend, and each backend's own page for its parameters.

    Attributes:
        files: Name in the artifact -> name that the backend expects.
        parameters: ``parameters`` of the model's configuration.
        threads: Name of the parameter for the number of threads of a run; "": none.
        pads: Parameters with which the backend fills up a batch of a fixed size; empty if it
            can't.
        accelerator: Name of its execution accelerator on a GPU. "" means that it runs on the CPU.
    """

    backend: str
    files: Mapping[str, str]
    parameters: Mapping[str, str] = MappingProxyType({})
    threads: str = ""
    pads: Mapping[str, str] = MappingProxyType({})
    accelerator: str = ""


def stands_in_by(runner: Runner) -> str:
    """Return the substitute for the device, e.g. ``the emulator``: its attribute ``stands_in_by``."""
    return str(getattr(runner, "stands_in_by", "")) or "reference execution"


class ExportedFile(NamedTuple):
    """Files of an engine without a bundle, as ``edgekit export`` or another tool wrote them.

    Attributes:
        files: File name as the runner wants it -> path.
        inputs: Inputs with static shapes.
        outputs: Outputs.
        options: Options of the runner.
    """

    files: Mapping[str, Path]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    options: Mapping[str, Json] = MappingProxyType({})


class EngineInfo(NamedTuple):
    """The optional parts of a target's device side; ``ENGINE`` in ``run.py``.

    Attributes:
        packages: Names of the distributions whose versions can change the bytes of an artifact or what it
            computes, the compiler's included. Those that are installed are in a bundle's manifest, as
            ``tools``. They are declared here because a build reads them from every installed target, and
            this module is cheap to import.
        prepared_on_device: Whether the engine of a variant is built on the device, in a child process of the
            target: such variants are opened in the background, and not probed.
        tools: Tools that the target uses besides its engine, for ``edgekit doctor``: rows of (name, version
            or None if it is not installed, purpose).
        node_reports: Name of a module with ``NODE_REPORTS = NodeReports(...)`` (target/node_reports.py), for
            ``edgekit explain``. A name, because the module may import packages that a device lacks. "": none.
        plain_use: Name of a module with ``plain_use(options, files) -> str``: the settings with which the
            engine's own API computes what was verified, as the text of a README next to exported files;
            ``files`` has the exported name of each file. "" means that its defaults do.
        export_files: Name of a module with ``export_files(files, options, evidence, title) -> files``: what
            ``edgekit export`` writes next to the artifact's own files, e.g. C that an app compiles. "": none.
        exported: Suffix of files or folders that the engine runs and EdgeKit does not import, like ``.xml``,
            -> name of a module with ``read_exported(path) -> ExportedFile``, for ``edgekit evaluate``. It
            reads the file without the engine.
        stands_in_for: ``() -> str``: the device that its runners emulate on this machine, as
            :func:`stands_in_for` names it, or "". A session runs such an engine only if it is named: an
            emulation is not a fallback. It is called before anything is loaded, so it must be cheap. None:
            the engine always is the device's own.
        decoder: Name of a module with ``open_decoder(files, options, threads, capacity) -> DecoderRunner``
            (generate/device/decoder.py): it loads language models. "" means that it loads none.
        triton: Backend by which Triton runs the artifacts. None means that it does not.
        accelerators: Name of a module that runs the same files on a GPU or an NPU, as the protocol
            ``Accelerators`` says (target/accelerators.py). "" means that the engine has none.
        model_packages: Name of a module with ``read_package(path)``, ``write_package(...)`` and
            others: folders in which the engine itself keeps several variants of a model
            (target/model_packages.py). "": it has none.
        keeps_compiled: Whether ``open_runner`` takes ``options[KEPT_IN]``: a folder beside the unpacked
            files, in which it keeps what it compiled, for the next process.
    """

    packages: tuple[str, ...] = ()
    prepared_on_device: bool = False
    tools: Tools | None = None
    node_reports: str = ""
    plain_use: str = ""
    export_files: str = ""
    exported: Mapping[str, str] = MappingProxyType({})
    stands_in_for: Callable[[], str] | None = None
    decoder: str = ""
    triton: TritonForm | None = None
    accelerators: str = ""
    model_packages: str = ""
    keeps_compiled: bool = False


KEPT_IN = "kept_in"
"""Option of ``open_runner`` that no bundle has: see ``EngineInfo.keeps_compiled``."""


class Engine(Protocol):
    """The device side of a target: the module ``run.py``."""

    ENGINE: EngineInfo

    def engine_version(self) -> str:
        """Name and version of the installed engine, e.g. ``LiteRT 2.3.0``.

        Raises:
            MissingDependency: it is not installed; the message has the pip command.
        """

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> Runner:
        """Load a variant.

        Args:
            files: File name -> path, as in the artifact.
            threads: Threads for one run; None is the target's default.

        Raises:
            MissingDependency: the engine is not installed.
            EngineError: the engine refused the files.
        """
