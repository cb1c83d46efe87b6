"""Evidence that a build writes on a variant into the manifest, key by key.

These are types for the writer. A bundle from elsewhere may contain anything here: a reader takes evidence as
open JSON and checks what it reads. JSON has no infinity and no NaN: such a figure is None.
"""

from __future__ import annotations

from typing import TypedDict

from edgekit.bundle.generation_evidence import Generation
from edgekit.tensor_spec import Json


class Transcription(TypedDict):
    """Texts of a speech model's variant (edgekit/generate/host/pipeline/encoder_decoder/speech.py)."""

    recordings: int
    given: bool
    """Whether they are the user's recordings; a generated recording has no words to judge by."""
    seconds: float
    """Length of all of them together."""
    words: int
    """Words that the float model writes."""
    different: int
    """Words that are inserted, missing or replaced."""
    limit: float
    """Largest share of different words, if the recordings were given."""


class OutputAccuracy(TypedDict):
    """One output against the reference, over all samples; formulas in compiler/evaluate/verify.py."""

    max_abs: float | None
    """Largest difference, in the output's own unit."""
    relative_norm: float | None
    """0 if the two are equal."""
    snr_db: float | None
    """None if every value equals the reference, or one is not finite; ``max_abs`` shows which."""
    cosine: float | None
    limit_db: float
    """Lowest SNR that is good enough; a device is held to it again."""


class Figure(TypedDict):
    """A score: the fields of ``edgekit.compiler.evaluate.fidelity.Score``."""

    metric: str
    """``self-mAP``, ``top-1``, ``SNR`` ..."""
    value: float | None
    """0 to 1, or decibels; None if it is infinite (the outputs are equal) or not a number."""
    unit: str
    """``dB``, or "" for a share."""


class Proved(TypedDict, total=False):
    """Bounds of a task's metric that the samples prove."""

    low: float
    """Lower end of the score, one-sided 95 %."""
    not_proved: str
    """Limits that the samples are too few to prove, and how many more would do; missing if all are proved."""


class Agreement(Figure, Proved):
    """Agreement of the variant with the float model."""

    samples: int
    """Number of samples it was scored on; all are held out unless ``samples.not_held_out`` lists the part."""


class TaskScore(TypedDict):
    metric: str
    value: float | None
    unit: str
    float: float


"""The task's own metric on labelled samples, and in ``float`` that of the float model."""


class Executed(TypedDict, total=False):
    """Hardware and arithmetic of the runs, as reported by the runner after loading."""

    device: str
    """``CPU``, ``GPU`` ..."""
    precision: str
    """The arithmetic: ``fp32``, ``fp16``, ``bf16``, ``fp8`` or ``int8``."""
    stands_in_for: str
    """The missing hardware, if a reference executor ran it; absent if its engine did."""


class Timing(TypedDict, total=False):
    """Runs of all variants in turns, one sample each, on the machine of the build."""

    p50_ms: float
    """Median of a run, in ms."""
    min_ms: float
    """Fastest run, in ms."""
    load_ms: float
    """CPU time of opening it, in ms."""
    runs: int
    threads: int
    cpu: str
    """The processor's name."""
    isa: str
    """Its instruction set extensions, as Linux names them; ``unknown`` if the system does not say."""
    machine: str
    """Its kind, e.g. ``x86_64``."""
    elsewhere: bool
    """True if the profile is of another kind of processor, so that this is not the device's time."""
    measured: str
    """Time of the measurement in UTC: ``2026-11-22 10:15``. A rebuild reuses this machine's measurements."""
    ratio: float
    """Time over the parent's, the two of them alone in turns; absent if that was not needed."""
    prompt_token_ms: float
    """Time to read one token of a prompt, in ms (language models, whose runs are one token each)."""


class FloatNodes(TypedDict):
    """Blocks that stay float in an int8 variant."""

    count: int
    names: list[str]


class Quantization(TypedDict, total=False):
    """Quantization of an int8 variant."""

    scheme: str
    choice: str
    """``choice`` of the candidate that it was made from (``SearchedCandidate``)."""
    placement: str
    """Name of the set of nodes to quantize: ``all``, ``large`` ..."""
    recipe: dict[str, Json]
    """The fields of ``edgekit.compiler.quantize.recipe.Recipe``."""
    integer_nodes: int
    float: FloatNodes
    samples: dict[str, Json]
    """``fit``, ``choose`` and ``prove``: samples in each part; ``not_held_out``: parts that others share."""
    because: list[str]
    """Reasons why blocks stay float, in words."""


class EqualizedLayers(TypedDict):
    """Two convolutions whose common channels were rescaled (edgekit/compiler/quantize/equalization.py)."""

    values: list[str]
    """The rescaled values between them, by name in the canonical graph."""
    gain_db: float
    """Fall of the int8 noise of the value between them, in the outputs of the second."""
    undone: bool
    """True if the layers were left as they are, because the float outputs changed."""


class SearchedCandidate(TypedDict):
    """One candidate of the int8 search, measured on the samples for choosing."""

    choice: str
    placement: str
    recipe: dict[str, Json]
    floats: list[str]
    """Nodes that stay float."""
    agreement: Figure | None
    """None if it could not be made or run."""
    snr_db: float | None
    """SNR of the worst output."""
    task: Figure | None
    ratio: float | None
    """Time over the float parent's; None if it was not timed."""
    lost: str
    """Reason why it is not in the bundle; "" if it is."""


class CostEvidence(TypedDict, total=False):
    """The estimate of the target's own tool: the fields of ``edgekit.target.cost_estimate.CostEstimate``."""

    tool: str
    configuration: str
    cycles: int | None
    latency_ms: float | None
    memory_bytes: dict[str, int]
    nodes: list[dict[str, Json]]
    notes: list[str]
    failed: str
    """Reason why there is no estimate; then the only key."""


class MemoryUse(TypedDict):
    """Use of one memory of the profile's device by a variant."""

    bytes: int
    limit_bytes: int | None
    """Size of the device's memory; None if the profile does not have it."""
    by: str
    """Source of the figure, e.g. ``recorded by ENGINE 0.1`` or ``estimated by ...``."""


class Search(TypedDict, total=False):
    """The int8 search of a target; at its first int8 variant."""

    tried: list[SearchedCandidate]
    damage: dict[str, float]
    """Node -> SNR in dB of the outputs with its part of the network alone quantized."""
    left_out: int
    """Candidates that there was no time for."""
    limit_s: float
    """Time limit of the search of all targets in seconds, if candidates were left out."""
    resumed: bool
    """True if what an earlier build shipped for the same graph with other weights was good enough, so that no
    others were measured."""
    plain: SearchedCandidate
    """Plain int8, if anything is repaired: every node, a scale for each value from its minimum to its
    maximum, weights to nearest. It is measured with the candidates and never chosen."""


class Cause(TypedDict):
    """Cause of a value's loss of accuracy in plain int8 or float16 (edgekit/compiler/quantize/causes.py)."""

    kind: str
    """``outlier range``, ``narrow channel``, ``depthwise range``, ``per-tensor weight``, ``mixed-scale
    concat`` or ``float16 headroom``."""
    value: str
    """Name in the canonical graph; for a weight its node's first output."""
    nodes: list[str]
    """Nodes that read it, by first outputs."""
    narrow: float
    """The largest magnitude of the narrowest channel; for a value with outliers, of nearly all of it."""
    wide: float
    """The largest magnitude of all; for float16 the largest that it can represent."""
    plain_db: float | None
    """SNR of the value with one scale from its minimum to its maximum; None for float16."""
    done: str
    """Repair of this variant, in words."""
    left_db: float | None
    """SNR of the value as it is stored; None if it is float, or is a weight."""


class Causes(TypedDict):
    """Causes of lost accuracy, the worst first."""

    found: list[Cause]
    more: dict[str, int]
    """Kind -> number of further causes."""


class KeptFindings(TypedDict):
    """Number of the float model's sure findings, e.g. boxes, that a variant keeps on the test samples."""

    kept: int
    of: int
    share: float
    """Estimated from changes of score, 0 to 1; for int8 on the samples for validation too."""


class SlowerForm(TypedDict):
    """A form of the same name that was slower, or not good enough."""

    ops: list[str]
    lost: str


class StoredWeights(TypedDict, total=False):
    """Storage of the weights in a variant with weight-only quantization."""

    ops: list[str]
    """ONNX operators that have these weights."""
    nodes: int
    rounding: str
    """``k-means``, ``fitted`` or ``nearest``."""
    ratio: float
    """Time over the float parent's, if it was too slow before the weights were fitted."""
    lost: list[SlowerForm]


class PathStep(TypedDict, total=False):
    """A step on the way to a smaller model; figures on the samples for testing."""

    step: str
    """``channels removed``, ``distilled``, ``int8``, or ``int8, trained``."""
    agreement: Figure
    task: Figure | None
    """None if the samples have no labels."""
    epochs: float
    """Number of training epochs."""
    seconds: float


class ShrunkEvidence(TypedDict):
    """Evidence on a variant that computes a smaller model; ``accuracy`` is against that model's outputs."""

    weight_bytes: list[int]
    """Size of the canonical float graph's weights, before and after."""
    snr_db: float | None
    """SNR of the worst output, against the source model, on the samples for testing."""
    parent: str
    """The variant of the source model that it is timed against; ``timing.ratio`` is the ratio."""
    path: list[PathStep]
    """Figures of each step, this variant the last."""


class DeferralFigures(TypedDict):
    """Result of ``edgekit bundle defer`` for a deferral (edgekit/compiler/evaluate/deferral_threshold.py)."""

    small: str
    """Name of the variant that answers."""
    large: str
    """Name of the variant that runs if the small one is unsure."""
    threshold: float
    limit: float
    confidence: float
    samples: int
    differing: int
    bound: float
    deferred: float
    small_ms: float
    large_ms: float
    expected_ms: float
    """Mean time of a run, in ms; also ``p50_ms`` of its timing."""
    samples_sha256: str
    small_bundle: str
    large_bundle: str


class ShapeFigures(TypedDict, total=False):
    """A variant at one of its shapes; a text encoder by texts of exactly so many tokens."""

    shape: str
    """Shapes of the inputs that have several."""
    snr_db: float | None
    """SNR of the worst output, against the source model at this shape; None if they are equal."""
    unequal: bool
    """True if an output is not finite, or is not zero where the reference is; else absent."""
    p50_ms: float
    """Median of a run, in ms, the shapes in turns; absent if nothing here times it."""
    min_ms: float
    of_one_shape: float
    """Time relative to a file of this shape alone, at two shapes of a variant with a range."""


class LargerThanSource(TypedDict):
    """Reasons why a variant is larger than its source."""

    source_weight_bytes: int
    """Size of the source's weights."""
    because: list[str]
    """The reasons, in words."""


class FaultRecord(TypedDict):
    """An unexpected exception that a variant was lost to: a bug of EdgeKit or of an engine."""

    error: str
    """Its type and text."""
    traceback: str
    """The file with its traceback, in EdgeKit's cache folder on the machine of the build; "" for none."""


class AdapterFigures(TypedDict):
    """Quality of a language model's variant with an adapter."""

    logits: OutputAccuracy
    generation: Generation


class Evidence(TypedDict, total=False):
    """Evidence that a build writes on a variant. Only ``size_bytes`` is always there.

    Each build has its own: what is timed or found in one never appears in another.
    """

    size_bytes: int
    """Total size of its files."""
    larger: LargerThanSource
    """Reasons why the variant is larger than its source; absent if it is not larger."""
    compile: dict[str, Json]
    """Facts from the compiler, in each target's own keys."""
    engine: str
    """Name and version."""
    limits_db: dict[str, float]
    """Output -> the lowest SNR that is good enough, if no engine was available to run it."""
    executed: Executed
    runner: dict[str, Json]
    """Facts from the engine after a run, in each target's own keys."""
    accuracy: dict[str, OutputAccuracy]
    """By output name."""
    timing: Timing
    quantization: Quantization
    equalized: list[EqualizedLayers]
    """Absent if the channels of all values are similar enough."""
    search: Search
    causes: Causes
    cost: CostEvidence
    memory: dict[str, MemoryUse]
    """By memory: ``ram``, ``flash``."""
    stored_weights: StoredWeights
    shrunk: ShrunkEvidence
    agreement: Agreement
    kept: KeptFindings
    deferral: DeferralFigures
    smaller_model: str
    """Digest of the other bundle that has this deferral's small variant."""
    task: TaskScore
    generation: Generation
    """Language and text-to-text models only."""
    adapters: dict[str, AdapterFigures]
    """Figures with each adapter, against the float reference with merged weights (language models)."""
    transcription: Transcription
    """Speech models only."""
    shapes: list[ShapeFigures]
    """Figures by shape, the largest last (variants with several shapes)."""
    fault: FaultRecord
