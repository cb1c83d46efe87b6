"""ONNX's textual form, as onnx.printer writes it."""

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer
from edgekit.errors import ModelError


def recognize(head, path):
    return head.lstrip().startswith(b"<") and b"ir_version" in head


def to_onnx(path, options):
    import onnx

    try:
        model = onnx.parser.parse_model(path.read_text("utf-8"))
    except onnx.parser.ParseError as problem:
        raise ModelError(f"{path.name}: is not ONNX's textual form: {problem}") from None
    return Converted(model.SerializeToString(deterministic=True))


def answers(path, samples):
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.parser.parse_model(path.read_text("utf-8")))
    outputs = [
        dict(zip(evaluator.output_names, evaluator.run(None, dict(sample)), strict=True))
        for sample in samples
    ]
    return FrameworkOutputs(f"onnx reference {onnx.__version__}", outputs)


IMPORTER = Importer("ONNX text", (".onnxtxt",), recognize, to_onnx, ("onnx",), answers=answers)
