"""Run a model on ONNX Runtime's CPU provider. Device side: numpy and onnxruntime.

Call forms, minima on one x86-64 core, for a two-node model and for YOLOX-nano:

    session.run(names, feeds)              6.8 us     20.83 ms
    IOBinding on own buffers, with copies  5.1 us     21.12 ms
    IOBinding on the caller's arrays      11.4 us     20.92 ms

`run` it is: it reads the caller's arrays in place and returns new ones, which is the contract, and the 2 us
that copying into bound buffers saves on a tiny model cost 0.3 ms on a photograph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import EngineError
from edgekit.system import cpu
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.contract import EngineInfo, TritonForm
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("onnxruntime",),
    node_reports="edgekit_ort.node_reports",
    decoder="edgekit_ort.decoder",
    accelerators="edgekit_ort.accelerators",
    triton=TritonForm("onnxruntime", {"model.onnx": "model.onnx"}, threads="intra_op_thread_count"),
    model_packages="edgekit_ort.model_packages",
)
MODEL_FILE = "model.onnx"
SHARED_FILE = "shared.onnx"
"""Has the weights of a further shape's model.onnx (shared_weights.py)."""

WRONG_OPTIMIZERS = ("Pad_Fusion", "QDQPropagationTransformer")
"""Optimizers of ONNX Runtime 1.31.1 that change the outputs, or the graph into one that does not load.

Pad_Fusion merges a Pad by 0 into a MaxPool, whose own padding is -inf. QDQPropagationTransformer carries an
int8 pair across a Reshape with a zero point of uint8. Without them YOLOX-nano, EfficientNet-Lite0, PP-OCRv4
detection and recognition, and ResNet-8 with Q/DQ give the same bits in the same time (within 1 %, interleaved
minima, one thread): EdgeKit's own pass folds the Pads that may be folded.
"""

QUANTIZING_OPTIMIZER = "WeightBiasQuantization"
"""Stores float weights between two Q/DQ pairs in int8, one scale an output channel, by default: a layer that
was kept in float on purpose lost 28 dB. It also stores float biases in int32, which models of other tools
need to be fast, so it is only left out if there is such a layer."""

FAST_MATH = "mlas.enable_gemm_fastmath_arm64_bfloat16"
"""Session option: MatMul rounds what it multiplies to bf16 and sums in fp32, on ARM64 with bf16; elsewhere it
does nothing. ONNX Runtime 1.32 on an emulated ARM: MatMul 52 dB from fp32, Conv equal.
https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/
onnxruntime_session_options_config_keys.h"""

EXACT_SUMS = "session.x64quantprecision"
"""Session option: multiply uint8 by uint8 instead of uint8 by int8, whose sums of two products saturate on
x86 processors without VNNI. With VNNI int8 is exact, and takes half the time of uint8: 2.2 ms instead of 4.8
(1,500 x 384 by 384 x 1,536, one thread, ONNX Runtime 1.32). The same header has it."""

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""Session option: where a serialized model's external data is; the same header has it."""

DISABLED_OPTIMIZERS = "optimization.disable_specified_optimizers"
"""Session option: names of optimizers that are left out, with a semicolon between two; the same header."""

SESSION_OPTIONS = "session_options"
"""Option of a variant of a model package: the package's session options, which replace EdgeKit's."""

ALLOWED_SESSION_OPTIONS = frozenset({
    DISABLED_OPTIMIZERS, EXACT_SUMS, FAST_MATH, "mlas.disable_kleidiai", "mlas.qnbit.force_fp32",
    "mlas.use_lut_gemm", "optimization.enable_cast_chain_elimination",
    "optimization.enable_gelu_approximation", "session.disable_double_qdq_remover",
    "session.disable_prepacking", "session.disable_qdq_constant_folding", "session.disable_quant_qdq",
    "session.enable_dq_matmulnbits_fusion", "session.enable_quant_qdq_cleanup", "session.force_spinning_stop",
    "session.inter_op.allow_spinning", "session.intra_op.allow_spinning",
    "session.qdq_matmulnbits_accuracy_level", "session.qdq_matmulnbits_block_size",
    "session.qdqisint8allowed", "session.set_denormal_as_zero",
})  # fmt: skip
"""Session options that a model package may set: they choose kernels and rewrites. Others write files, read
files, or take threads and memory of this machine."""

ASSIGNMENT = "session.record_ep_graph_assignment_info"
"""Session option: keep which nodes were assigned to which provider. ONNX Runtime before 1.24 ignores it."""


def engine_version() -> str:
    """Name and version of the installed engine."""
    return f"ONNX Runtime {_onnxruntime().__version__}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OrtRunner:
    """Load ``model.onnx``. ``threads=None`` takes ONNX Runtime's default, one a physical core.

    ``options["precision"]`` is that of the graph: ``int8`` if it holds Q/DQ pairs, else ``fp32``. The CPU
    provider computes as the graph says; ``options["float_islands"]``: also if floats are between pairs.
    ``options["widened_weights"]``: only weights are stored as integers. ``options["wide_sums"]``: products
    of integers are summed exactly on every processor. ``options["arithmetic"]``: ``bf16``: MatMul multiplies
    in bf16 if the processor does. ``options["session_options"]``: those of a model package, in place of all
    these.
    """
    path, shared = files[MODEL_FILE], files.get(SHARED_FILE)
    given = options.get(SESSION_OPTIONS)
    if given is not None and (refused := sorted(set(given) - ALLOWED_SESSION_OPTIONS)):
        raise EngineError(f"session option {refused[0]!r} of a model package is not allowed")
    fast_math = options.get("arithmetic") == "bf16" and not cpu.lacking(options)
    try:
        session = open_session(
            path if shared is None else path.read_bytes(),
            threads,
            keep_float_regions=bool(options.get("float_islands")),
            widened_weights=bool(options.get("widened_weights")),
            fast_math=fast_math,
            wide_sums=bool(options.get("wide_sums")),
            weights_in=shared and shared.parent,
            session_options=given,
        )
    except EngineError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {problem}") from None
    precision = "bf16" if fast_math else options.get("precision", "fp32")
    return OrtRunner(session, [spec.name for spec in outputs], precision)


def open_session(
    model: Path | bytes,
    threads: int | None,
    optimize: bool = True,
    keep_float_regions: bool = False,
    widened_weights: bool = False,
    fast_math: bool = False,
    wide_sums: bool = False,
    profile_into: Path | None = None,
    weights_in: Path | None = None,
    fixed_memory: bool = False,
    accelerator: tuple[str, dict[str, str], Sequence[Any]] | None = None,
    session_options: Mapping[str, str] | None = None,
) -> Any:
    """Open an ``onnxruntime.InferenceSession`` with EdgeKit's settings.

    Args:
        threads: Threads within one op; ops run one after the other.
        optimize: Apply all graph optimizations; False runs the graph as it is written.
        keep_float_regions: Keep float weights between Q/DQ pairs as they are.
        widened_weights: Only weights are stored as integers: convert them to floats at load. Otherwise they
            are widened at each run, or multiplied by a kernel that is slower than the float one.
        wide_sums: Whether to set EXACT_SUMS if the processor needs it.
        profile_into: Path prefix of the file that ``end_profiling`` writes the time of every node into.
        fixed_memory: Plan no memory from the run before: a recorded run keeps its own.
        accelerator: Name, options and devices of an execution provider that comes before the CPU's; the
            devices are empty unless a plug-in brings it (accelerators.py).
        session_options: Session options that replace EdgeKit's. None means EdgeKit's.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: ONNX Runtime refused the model; the message is its own.
    """
    ort = _onnxruntime()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads or 0  # 0: the default
    settings.inter_op_num_threads = 1
    if session_options is None:
        session_options = session_options_of(keep_float_regions, widened_weights, fast_math, wide_sums)
    for key, value in session_options.items():
        settings.add_session_config_entry(key, value)
    if weights_in is not None:
        settings.add_session_config_entry(WEIGHTS_FOLDER, str(weights_in))
    level = ort.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    settings.log_severity_level = 3  # warnings of the optimizer are no news to the user; failures raise
    if fixed_memory:
        settings.enable_mem_pattern = False
    if profile_into is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(profile_into)
    source = model if isinstance(model, bytes) else str(model)
    providers: list[Any] = ["CPUExecutionProvider"]
    if accelerator is not None:
        name, provider_options, devices = accelerator
        settings.add_session_config_entry(ASSIGNMENT, "1")
        if devices:
            settings.add_provider_for_devices(devices, provider_options)
            providers = []
        else:
            providers.insert(0, (name, provider_options))
    try:
        return ort.InferenceSession(
            source,
            settings,
            providers=providers,
            enable_fallback=0,  # it would print what it refuses to stdout, and try the same again
        )
    except Exception as problem:  # onnxruntime raises a dozen classes that share no root but this one
        raise EngineError(str(problem)) from None


def session_options_of(
    keep_float_regions: bool = False,
    widened_weights: bool = False,
    fast_math: bool = False,
    wide_sums: bool = False,
) -> dict[str, str]:
    """Return the session options of :func:`open_session`, whose arguments these are, for this processor."""
    exact = wide_sums and not _adds_widely(cpu.instruction_sets())
    return {
        # Idle threads sleep: spinning burns a core (and a battery) between frames to save some microseconds.
        "session.intra_op.allow_spinning": "0",
        # A MatMul of int8 weights and floats would get its floats rounded to int8 (42 dB); 1 is float32.
        "session.qdq_matmulnbits_accuracy_level": "1",
        "session.disable_quant_qdq": "1" if widened_weights else "0",
        FAST_MATH: "1" if fast_math else "0",
        EXACT_SUMS: "1" if exact else "0",
        DISABLED_OPTIMIZERS: ";".join(
            [*WRONG_OPTIMIZERS, *([QUANTIZING_OPTIMIZER] if keep_float_regions else [])]
        ),
    }


def _adds_widely(extensions: Sequence[str]) -> bool:
    """Return whether products of uint8 by int8 are summed in 32 bits. With AVX-512, MLAS does not use
    AVX-VNNI.

    >>> [_adds_widely(names) for names in (("avx2",), ("avx2", "avx_vnni"), ("avx512f", "avx_vnni"), ())]
    [False, True, False, False]
    """
    return "avx512_vnni" in extensions or ("avx_vnni" in extensions and "avx512f" not in extensions)


class OrtRunner:
    """A loaded ``model.onnx``."""

    device = "CPU"

    def __init__(self, session: Any, outputs: Sequence[str], precision: str) -> None:
        self.precision = precision
        self._session = session
        self._outputs = list(outputs)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            outputs = self._session.run(self._outputs, feeds)
        except Exception as problem:  # see open_session
            raise EngineError(f"{engine_version()} failed to run: {problem}") from None
        return dict(zip(self._outputs, outputs, strict=True))

    def facts(self) -> dict[str, Json]:
        return {"providers": list(self._session.get_providers())}

    def close(self) -> None:
        del self._session


def _onnxruntime() -> Any:
    return onnxruntime("running an ONNX model", "ort")
