"""Build job and samples: what all stages of a build read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Samples
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.conversion import Imported
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.distilled import TrainingParts
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.import_check import ImportCheck
from edgekit.compiler.quantize.observe.calibrate import Split
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.target.build_target import BuildTarget
from edgekit.target.quant_rules import WeightForm
from edgekit.tensor_spec import Json, TensorSpec


@dataclass(frozen=True, eq=False)
class BuildJob:
    """Build job: the model, the targets and the options, fixed once the model is open.

    Attributes:
        source: The model as opened; with ``image``, the card's preparation precedes it.
        nodes: Number of nodes of the model as opened.
        imported: The conversion to ONNX; None if the model was ONNX.
        canonical: The model after the passes.
        passes: Changes by the passes, for the manifest.
        image: Image input of the user's card, if artifacts take bytes instead; else None.
        layouts: Name -> layout, of the inputs and outputs that artifacts store differently from the source.
        precisions: Precisions to compile for every target before quantization, the parent first.
        int8_profiles: Names of the profiles that int8 is searched for.
        no_int8: Reason that int8 is not searched for the other targets, or "".
        weight_forms: Profile name -> weight-only forms to build, if there are some.
    """

    name: str
    source: ir.Model
    nodes: int
    imported: Imported | None
    canonical: ir.Model
    passes: Json
    card: Card | None
    image: ImageInput | None
    layouts: Mapping[str, str]
    targets: Sequence[BuildTarget]
    request: BuildRequest
    options: BuildOptions
    precisions: tuple[str, ...]
    int8_profiles: Sequence[str]
    no_int8: str
    weight_forms: Mapping[str, Sequence[WeightForm]]
    faults: Faults

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return signature(self.source)[0]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return signature(self.source)[1]

    @property
    def holds_out(self) -> bool:
        """Return whether samples are held out for testing, because some are used for calibration."""
        needed = bool(self.int8_profiles) or self.options.makes("quantized") or bool(self.options.shrink)
        return needed or (bool(self.weight_forms) and self.request.samples is not None)


@dataclass(frozen=True, eq=False)
class BuildSamples:
    """The samples of a build.

    Attributes:
        all: The given samples, or random ones.
        parts: The same, split; None if none are held out.
        reference: The source model's outputs for the few samples that every variant is verified with.
        import_check: Comparison of an imported model with its original on them; None if it was ONNX.
        training: The same samples, with those to train on; None without training.
        uses_labels: Whether labels beside the samples are used: False if they are of another model's classes.
    """

    all: Samples
    parts: Split | None
    reference: ReferenceOutputs
    import_check: ImportCheck | None
    training: TrainingParts | None = None
    uses_labels: bool = True
