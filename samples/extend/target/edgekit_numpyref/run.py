"""Run model.onnx on onnx's reference evaluator. Device side: numpy and onnx."""

from __future__ import annotations

from edgekit.errors import EngineError, MissingDependency
from edgekit.target.contract import EngineInfo

ENGINE = EngineInfo(packages=("edgekit-numpyref", "onnx"))


def engine_version():
    """Name and version; raises MissingDependency."""
    try:
        import onnx
    except ImportError:
        raise MissingDependency("onnx", "running model.onnx", "pip install onnx") from None
    return f"onnx reference {onnx.__version__}"


def open_runner(files, inputs, outputs, options, threads):
    """Load one variant. Raises MissingDependency, or EngineError when the engine refuses the files."""
    version = engine_version()
    from onnx.reference import ReferenceEvaluator

    path = files["model.onnx"]
    try:
        evaluator = ReferenceEvaluator(str(path))
    except Exception as problem:  # an engine may throw anything at a damaged file
        raise EngineError(f"{version} did not load {path}: {problem}") from None
    return ReferenceRunner(evaluator, version, [spec.name for spec in outputs], options["precision"])


class ReferenceRunner:
    """A loaded model.onnx."""

    device = "CPU"

    def __init__(self, evaluator, version, outputs, precision):
        self.precision = precision
        self._evaluator, self._version, self._outputs = evaluator, version, outputs

    def run(self, feeds):
        try:
            found = self._evaluator.run(self._outputs, dict(feeds))
        except Exception as problem:
            raise EngineError(f"{self._version} failed to run: {problem}") from None
        return {name: array.copy() for name, array in zip(self._outputs, found, strict=True)}

    def facts(self):
        return {}

    def close(self):
        self._evaluator = None
