"""Targets' compilers that compile a model at several shapes, or for all sizes of a range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from edgekit.compiler.lowering.shape_adaptation import at_shape
from edgekit.compiler.model.shape_sets import compiled_sizes
from edgekit.compiler.pipeline.model_shapes import Further, Shapes
from edgekit.compiler.pipeline.shape_ranges import refusal
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError
from edgekit.target.contract import Artifact, Compiler, TargetInfo
from edgekit.target.profile import Profile
from edgekit.target.shape_range import OPTION as RANGE
from edgekit.tensor_spec import Array, Json, Signature


class ShapesCompiler:
    """A target's compiler that compiles at each shape."""

    def __init__(self, compiler: Compiler, shapes: Shapes) -> None:
        info = compiler.TARGET
        self.TARGET: TargetInfo = info._replace(refine=self._refined if info.refine is not None else None)
        self._compiler, self._shapes = compiler, shapes

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        return self._compiler.check_model(model, profile)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """Return one artifact with the files of all shapes. Errors are those of the target's compiler."""
        return self._together(*self._compiled(model, profile, precision))

    def _compiled(self, model: ir.Model, profile: Profile, precision: str) -> tuple[Artifact, list[Artifact]]:
        whole = self._compiler.compile_model(model, profile, precision)
        return whole, [
            self._compiler.compile_model(self._at(model, smaller), profile, precision)
            for smaller in self._shapes.further
        ]

    def _at(self, model: ir.Model, further: Further) -> ir.Model:
        return at_shape(model, self._shapes.canonical, further.canonical)

    def _refined(
        self,
        model: ir.Model,
        profile: Profile,
        precision: str,
        artifact: Artifact,
        samples: Sequence[Mapping[str, Array]],
    ) -> Artifact:
        """Refine each shape with samples of that shape. The shapes are compiled again, because ``artifact``
        holds all of them."""
        refine, shapes = self._compiler.TARGET.refine, self._shapes
        assert refine is not None
        whole, further = self._compiled(model, profile, precision)
        for number, (smaller, compiled) in enumerate(zip(shapes.further, further, strict=True)):
            cut = [shapes.cut(sample, smaller.signature) for sample in samples]
            further[number] = refine(self._at(model, smaller), profile, precision, compiled, cut)
        return self._together(refine(model, profile, precision, whole, samples), further)

    def _together(self, whole: Artifact, further: Sequence[Artifact]) -> Artifact:
        if (share := self.TARGET.share_weights) is not None:
            whole, further = share(whole, further)
        return self._shapes.together(whole, further, share is not None)


class RangeCompiler(ShapesCompiler):
    """A target's compiler that compiles one artifact for all sizes of a range."""

    def __init__(self, compiler: Compiler, shapes: Shapes) -> None:
        super().__init__(compiler, shapes)
        self.TARGET = self.TARGET._replace(refine=None)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """Return one artifact for all sizes.

        Raises:
            EngineError: the model differs between the sizes in what does not follow from the size.
            Others as the target's compiler.
        """
        compile_range, of_range = self._compiler.TARGET.compile_range, self._shapes.of_range
        assert compile_range is not None
        assert of_range is not None
        models = [*(self._at(model, smaller) for smaller in self._shapes.further), model]
        try:
            artifact = compile_range(models, compiled_sizes(of_range.sizes), profile, precision)
        except EngineError as problem:
            raise refusal(of_range, problem) from None
        table: Json = of_range.as_json()
        if self._shapes.text is not None:
            table["text"] = self._shapes.text.axes.as_json()
        return artifact._replace(options={**artifact.options, RANGE: table})

    def of_one_shape(self, profile: Profile, precision: str) -> Iterator[tuple[Signature, Artifact]]:
        """Yield artifacts of the float model at the largest shape and at the next one, to compare times."""
        graphs = [(item.signature, item.canonical) for item in self._shapes.further[-1:]]
        for signature, graph in (*graphs, (self._shapes.largest, self._shapes.canonical)):
            yield signature, self._compiler.compile_model(graph, profile, precision)
