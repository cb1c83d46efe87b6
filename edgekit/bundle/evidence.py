"""What a build writes of a variant into the manifest, key by key.

These are types for the writer. A bundle from elsewhere may hold anything here: who reads one takes evidence
as open JSON and checks what is read. JSON has no infinity and no NaN: such a figure is None.
"""

from __future__ import annotations

from typing import TypedDict

from edgekit.tensor_spec import Json


class OutputAccuracy(TypedDict):
    """One output against the reference, over all samples; formulas in compiler/evaluate/verify.py."""

    max_abs: float | None
    """Largest difference, in the output's own unit."""
    relative_norm: float | None
    """0 where the two are equal."""
    snr_db: float | None
    """None where every value equals the reference, or one of them is not finite (``max_abs`` tells which)."""
    cosine: float | None
    limit_db: float
    """Lowest SNR that is good enough; a device is held to it again."""


class Figure(TypedDict):
    """A score, of ``edgekit.compiler.evaluate.fidelity.Score``."""

    metric: str
    """``self-mAP``, ``top-1``, ``SNR`` ..."""
    value: float | None
    """0 to 1, or decibels; None where it is infinite (the outputs are equal) or not a number."""
    unit: str
    """``dB``, or "" for a share."""


class Agreement(Figure):
    """How far the variant agrees with the float model."""

    samples: int
    """How many it was scored on: all of them held out, unless ``samples.not_held_out`` says otherwise."""


class TaskScore(TypedDict):
    metric: str
    value: float | None
    unit: str
    float: float


"""The task's own metric on labelled samples, and in ``float`` that of the float model."""


class Executed(TypedDict, total=False):
    """What ran it, as reported by the runner after loading."""

    device: str
    """``CPU``, ``GPU`` ..."""
    precision: str
    """The arithmetic: ``fp32``, ``fp16``, ``bf16``, ``fp8`` or ``int8``."""
    stands_in_for: str
    """The hardware that was not there, where a reference executor ran it; absent where its engine did."""


class Timing(TypedDict, total=False):
    """Runs of all variants in turns, one sample each, on the machine of the build."""

    p50_ms: float
    """Median of a run, in ms."""
    min_ms: float
    """Fastest run, in ms."""
    load_ms: float
    """Opening it, in ms."""
    runs: int
    threads: int
    cpu: str
    """The processor's name."""
    isa: str
    """Its instruction set extensions, as Linux names them; ``unknown`` where the system does not tell."""
    machine: str
    """Its kind, e.g. ``x86_64``."""
    measured: str
    """When, in UTC: ``2026-11-22 10:15``. A rebuild recalls what this machine measured before."""
    ratio: float
    """Time over the parent's, the two of them alone in turns; absent where that was not needed."""
    prompt_token_ms: float
    """Of a language model, whose runs are one token each: time to read one token of a prompt, in ms."""


class FloatNodes(TypedDict):
    """Blocks that stay float in an int8 variant."""

    count: int
    names: list[str]


class Quantization(TypedDict, total=False):
    """How an int8 variant was quantized."""

    scheme: str
    choice: str
    """Of the candidate that it was made from (``SearchedCandidate``)."""
    placement: str
    """Which nodes were to be quantized: ``all``, ``large`` ..."""
    recipe: dict[str, Json]
    """The fields of ``edgekit.compiler.quantize.recipe.Recipe``."""
    integer_nodes: int
    float: FloatNodes
    samples: dict[str, Json]
    """``fit``, ``choose`` and ``prove``: samples in each part; ``not_held_out``: parts that others share."""
    because: list[str]
    """Why blocks stay float, in words."""


class SearchedCandidate(TypedDict):
    """One candidate of the int8 search, measured on the samples for choosing."""

    choice: str
    placement: str
    recipe: dict[str, Json]
    floats: list[str]
    """Nodes that stay float."""
    agreement: Figure | None
    """None where it could not be made or run."""
    snr_db: float | None
    """Of the worst output."""
    task: Figure | None
    ratio: float | None
    """Time over the float parent's; None where it was not timed."""
    estimated_ratio: float | None
    """Estimated cycles over the float parent's; None where they were not estimated."""
    lost: str
    """Why it is not in the bundle; "" where it is."""


class EstimatedCycles(TypedDict):
    """Cycles that were estimated, never measured: instructions counted under qemu, weighed by the processor's
    pipelines (docs/arm-estimates.md)."""

    ratio: float
    """Of the float parent's."""
    processor: str
    method: str


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
    """Why there is none; alone."""


class MemoryUse(TypedDict):
    """What a variant takes of one memory of its profile's device."""

    bytes: int
    limit_bytes: int | None
    """What the device has; None where the profile does not tell."""
    by: str
    """Who tells, e.g. ``recorded by ENGINE 0.1`` or ``estimated by ...``."""


class Search(TypedDict, total=False):
    """The int8 search of a target; at its first int8 variant."""

    tried: list[SearchedCandidate]
    damage: dict[str, float]
    """Node -> SNR in dB of the outputs with this node alone quantized."""
    left_out: int
    """Candidates that there was no time for."""
    plain: SearchedCandidate
    """Plain int8, where something is repaired: every node, a scale for each value from its minimum to its
    maximum, weights to nearest; measured beside the candidates and never chosen."""


class Cause(TypedDict):
    """Why one value loses accuracy in plain int8 or float16 (edgekit/compiler/quantize/causes.py)."""

    kind: str
    """``outlier range``, ``narrow channel``, ``depthwise range``, ``per-tensor weight``, ``mixed-scale
    concat`` or ``float16 headroom``."""
    value: str
    """Of the canonical graph; of a weight its node's first output."""
    nodes: list[str]
    """What reads it, by first outputs."""
    narrow: float
    """The largest magnitude of the narrowest channel; of a value with outliers, of nearly all of it."""
    wide: float
    """The largest magnitude of all; of float16 the largest that it holds."""
    plain_db: float | None
    """SNR of the value with one scale from its minimum to its maximum; None for float16."""
    done: str
    """What this variant does about it, in words."""
    left_db: float | None
    """SNR of the value as it is stored; None where it is float, or is a weight."""


class Causes(TypedDict):
    """Why accuracy is lost, the worst first."""

    found: list[Cause]
    more: dict[str, int]
    """Kind -> how many more there are."""


class KeptFindings(TypedDict):
    """How many of the float model's sure findings a variant keeps, e.g. boxes, on the samples for testing."""

    kept: int
    of: int
    share: float
    """Estimated from changes of score, 0 to 1; of int8 on the samples for validation too."""


class SlowerForm(TypedDict):
    """A form of the same name that was slower, or not good enough."""

    ops: list[str]
    lost: str


class StoredWeights(TypedDict, total=False):
    """How the weights are stored where only they are quantized."""

    ops: list[str]
    """ONNX operators whose weights these are."""
    nodes: int
    rounding: str
    """``k-means``, ``fitted`` or ``nearest``."""
    ratio: float
    """Time over the float parent's, where it was found too slow before the weights were fitted."""
    lost: list[SlowerForm]


class PathStep(TypedDict, total=False):
    """A step on the way to a smaller model; figures on the samples for testing."""

    step: str
    """``channels removed``, ``distilled``, ``int8``, or ``int8, trained``."""
    agreement: Figure
    task: Figure | None
    """None where the samples have no labels."""
    epochs: float
    """Of a training."""
    seconds: float


class ShrunkEvidence(TypedDict):
    """Of a variant that computes a smaller model: ``accuracy`` is against that model's own outputs."""

    weight_bytes: list[int]
    """Of the canonical float graph, before and after."""
    snr_db: float | None
    """Of the worst output, against the source model, on the samples for testing."""
    parent: str
    """The variant of the source model that it is timed against; ``timing.ratio`` is the ratio."""
    path: list[PathStep]
    """What each step brought, this variant the last."""


class DeferralFigures(TypedDict):
    """Of a deferral: what ``edgekit defer`` found (edgekit/compiler/evaluate/deferral_threshold.py)."""

    small: str
    """Name of the variant that answers."""
    large: str
    """Of the one that is asked where it is unsure."""
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
    """Mean of a run; ``p50_ms`` of its timing too."""
    samples_sha256: str
    small_bundle: str
    large_bundle: str


class GreedyChoices(TypedDict):
    """Of the tokens that a language model writes after the golden prompts, the likeliest each time."""

    likeliest: int
    """So many are the float reference's likeliest at their place, too."""
    of: int


class Generation(TypedDict, total=False):
    """What a language model's variant does (edgekit/compiler/build/language/evaluation.py)."""

    perplexity: float | None
    """Of the text that the package ships; None where it is not finite."""
    float_perplexity: float | None
    """That of the float reference."""
    limit: float
    """Share by which it may be above."""
    tokens: int
    """Of the text, those that were judged."""
    agreement: float | None
    """Share of them at which its likeliest token is the reference's."""
    answers: list[list[int]]
    """Tokens that it writes after each golden prompt."""
    greedy: GreedyChoices


class LengthFigures(TypedDict, total=False):
    """A text encoder's variant at one of its lengths, by texts of exactly so many tokens."""

    snr_db: float | None
    """Of the worst output, against the source model at the whole length; None where they are equal."""
    unequal: bool
    """True where an output is not finite, or is something where the reference is zero; else absent."""
    p50_ms: float
    """Median of a run, in ms, the lengths in turns; absent where nothing here times it."""
    min_ms: float


class LargerThanSource(TypedDict):
    """Why a variant is larger than its source."""

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


class Evidence(TypedDict, total=False):
    """All that a build writes of a variant. Only ``size_bytes`` is always there.

    Each build has its own: what is timed or found of one is never seen in another.
    """

    size_bytes: int
    """Of its files."""
    larger: LargerThanSource
    """Reasons why the variant is larger than its source; absent if it is not larger."""
    compile: dict[str, Json]
    """What the compiler tells, each target in its own words."""
    engine: str
    """Name and version."""
    limits_db: dict[str, float]
    """Output -> the lowest SNR that is good enough, where no engine is here to run it."""
    executed: Executed
    runner: dict[str, Json]
    """What the engine tells after a run, each target in its own words."""
    accuracy: dict[str, OutputAccuracy]
    """By output name."""
    timing: Timing
    quantization: Quantization
    search: Search
    causes: Causes
    estimated: EstimatedCycles
    cost: CostEvidence
    memory: dict[str, MemoryUse]
    """By memory: ``ram``, ``flash``."""
    stored_weights: StoredWeights
    shrunk: ShrunkEvidence
    agreement: Agreement
    kept: KeptFindings
    deferral: DeferralFigures
    smaller_model: str
    """Of a deferral's small variant that another bundle has: the digest of that one."""
    task: TaskScore
    generation: Generation
    """Of a language model."""
    lengths: dict[str, LengthFigures]
    """Of a text encoder with several lengths: by tokens, ascending."""
    fault: FaultRecord
