"""The op table of a target: ONNX op -> the one function that lowers it.

    lower = OpTable("tflite")

    @lower("Softmax", since=13)
    def softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
        return b.emit("SOFTMAX", ...)

A lowering's signature is the ONNX signature: inputs by position, attributes by keyword with ONNX's defaults.
Ops of ``op_arguments.DECODERS`` have theirs decoded before: the lowering takes what the decoder returns.
An attribute that the signature does not name is reported as unsupported, never ignored. ``since`` is the
opset that last changed the op; a model of opset 22 uses the newest function whose ``since`` is at most 22.

The table is independent of the target's format: the target provides a builder with opaque handles.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import onnx_ir as ir

from edgekit.compiler.lowering.op_arguments import DECODERS, Decoded, attributes_of, defaults_of
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding, Inexpressible, as_lines
from edgekit.errors import UnsupportedError

H = TypeVar("H")
F = TypeVar("F", bound=Callable[..., Any])

UNKNOWN_OP_FIX = "build it for ort, or see docs/add-an-op.md"


class Builder(Protocol[H]):
    """A target's builder: creates handles (type H) for values, and is notified of the node being lowered."""

    def begin(self, node: ir.Node) -> None:
        """Prepare for the lowering of a node; called before each one."""

    def handle(self, value: ir.Value) -> H:
        """Return the handle of an initializer, an input or an earlier node's output."""

    def bind(self, value: ir.Value, handle: H) -> None:
        """Record ``handle`` as the lowered output of a node."""

    def bind_unknown(self, value: ir.Value) -> None:
        """Create a placeholder for the output of an unsupported node, so that later nodes are checked too."""


class LoweredNode:
    """Node being lowered, as a builder sees it."""

    node: ir.Node | None = None

    def out_shape(self, index: int = 0) -> tuple[int, ...]:
        assert self.node is not None
        shape = static_dims(self.node.outputs[index])
        if shape is None:
            raise Inexpressible("the shape of its output is not static", "give --shape", "EK1003")
        return shape

    def wants_output(self, index: int) -> bool:
        assert self.node is not None
        if index >= len(self.node.outputs):
            return False
        output = self.node.outputs[index]
        return bool(output.uses()) or output.is_graph_output()


class OpTable(Generic[H]):
    """Maps (op, opset) to a lowering function, and reports why a node has none."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._table: dict[tuple[str, str], dict[int, Callable[..., Any]]] = {}

    def __call__(self, op: str, *, since: int, domain: str = "") -> Callable[[F], F]:
        """Register the decorated function as the lowering of ``op`` from opset ``since`` on.

        Raises:
            ValueError: that opset of the op has a lowering already.
        """

        def register(function: F) -> F:
            versions = self._table.setdefault((domain, op), {})
            if since in versions:
                raise ValueError(f"{self.target}: {op} since opset {since} has two lowerings")
            versions[since] = function
            return function

        return register

    def family(self, entries: Mapping[str, Any], *, since: int, doc: str) -> Callable[[F], F]:
        """Register the decorated function as the lowering of several ops.

        Args:
            entries: Op -> first argument of the function for it.
            doc: Description in the table of ops; ``{}`` stands for the entry, ``{op}`` for the op.
        """

        def register(function: F) -> F:
            for op, entry in entries.items():
                lowering = partial(function, entry)
                lowering.__doc__ = doc.format(entry, op=op)
                self(op, since=since)(lowering)
            return function

        return register

    def find(self, node: ir.Node, opset: int) -> Callable[..., Any] | None:
        """Return the lowering of ``node`` at ``opset``, or None."""
        versions = self._table.get((_domain(node), node.op_type), {})
        fitting = [since for since in versions if since <= opset]
        return versions[max(fitting)] if fitting else None

    def refusal(self, node: ir.Node, opset: int) -> Finding | None:
        """Return why ``node`` has no lowering, or None if one supports all of its attributes and inputs."""
        function = self.find(node, opset)
        if function is None:
            reason = f"{self.target} does not support {_title(node)} at opset {opset}"
            return self._finding(node, "EK1001", reason, UNKNOWN_OP_FIX)
        parameters = inspect.signature(function).parameters.values()
        is_decoded = _decoder(node) is not None
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        unknown = sorted(set(node.attributes) - set(defaults_of(node.op_type) if is_decoded else named))
        if unknown:
            reason = f"attribute {', '.join(unknown)} is not supported"
            return self._finding(node, "EK1002", reason, UNKNOWN_OP_FIX)
        takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        max_inputs = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) - 1
        if len(node.inputs) > max_inputs and not takes_any and not is_decoded:
            reason = f"{len(node.inputs)} inputs; at most {max_inputs} are supported"
            return self._finding(node, "EK1002", reason, UNKNOWN_OP_FIX)
        return None

    def lower(
        self,
        build: Builder[H],
        graph: ir.Graph | ir.Function,
        opset: int,
        dynamic: Sequence[Finding] = (),
    ) -> list[Finding]:
        """Lower all nodes in order.

        Every node is examined, also those after one without a lowering. If there is a finding, the built
        program is incomplete: drop it.

        Args:
            dynamic: Findings of ``open_shapes``. If there are any, nodes with dynamic shapes are not lowered,
                only looked up.

        Returns:
            Those findings, and one for each other node without a lowering.
        """
        findings, named = list(dynamic), {finding.node for finding in dynamic}
        for node in graph:
            build.begin(node)
            finding = None if node_name(node) in named else self.refusal(node, opset)
            is_left_out = bool(dynamic) and _is_open((*node.inputs, *node.outputs))
            if finding is None and not is_left_out:
                finding = self._lower_node(build, node, opset)
            if finding is not None:
                findings.append(finding)
            if finding is not None or is_left_out:
                for output in node.outputs:
                    build.bind_unknown(output)
        return findings

    def _lower_node(self, build: Builder[H], node: ir.Node, opset: int) -> Finding | None:
        function = self.find(node, opset)
        assert function is not None
        try:
            inputs = [build.handle(v) if v is not None and v.name else None for v in node.inputs]
            if (decode := _decoder(node)) is not None:
                decoded, attributes = decode(build, attributes_of(node), *inputs)
                result = function(build, *decoded, **attributes)
            else:
                result = function(build, *inputs, **{k: v.value for k, v in node.attributes.items()})
            handles: tuple[H, ...] = result if isinstance(result, tuple) else (result,)
            used_outputs = [o for o in node.outputs if o.uses() or o.is_graph_output()]
            absent = [o for o in used_outputs if int(o.index() or 0) >= len(handles)]
            if absent:
                raise Inexpressible(f"output {absent[0].index()} ({absent[0].name}) is not produced")
            for output, handle in zip(node.outputs, handles, strict=False):
                build.bind(output, handle)
        except Inexpressible as reason:
            return self._finding(node, reason.code, reason.reason, reason.fix)
        return None

    def _finding(self, node: ir.Node, code: str, reason: str, fix: str) -> Finding:
        return Finding(code, "error", self.target, node_name(node), _title(node), reason, fix)

    def rows(self) -> Iterator[tuple[str, int, str]]:
        """Return (op, since, first line of the docstring) of every lowering."""
        for (domain, op), versions in sorted(self._table.items()):
            for since, function in sorted(versions.items()):
                first = (inspect.getdoc(function) or "").partition("\n")[0]
                yield f"{domain}.{op}" if domain else op, since, first


def refuse(profile: str, findings: Sequence[Finding], reason: str) -> None:
    """Check that there are no findings.

    Raises:
        UnsupportedError: there are some; all are named.
    """
    if findings:
        noun, lines = "node has" if len(findings) == 1 else "nodes have", "\n".join(as_lines(findings))
        raise UnsupportedError(f"{profile}: {len(findings)} {noun} {reason}\n{lines}", findings)


def open_shapes(model: ir.Model, target: str) -> list[Finding]:
    """Return a finding for each input without a static shape, and for each node of the main graph that makes
    such a shape from static ones. What follows from it is not listed."""
    findings = []
    for value in model.graph.inputs:
        if static_dims(value) is None:
            reason, fix = _not_static(value), f"set it with --shape {value.name}=..."
            findings.append(Finding("EK1003", "error", target, str(value.name), "", reason, fix))
    fix = "cut the model before it, or build it for ort"
    for node in model.graph:
        open_ones = [value for value in node.outputs if _is_open([value])]
        if open_ones and not _is_open(node.inputs):
            reason = _not_static(open_ones[0])
            findings.append(Finding("EK1003", "error", target, node_name(node), node.op_type, reason, fix))
    return findings


def _is_open(values: Iterable[ir.Value | None]) -> bool:
    return any(value is not None and bool(value.name) and static_dims(value) is None for value in values)


def _not_static(value: ir.Value) -> str:
    if value.shape is None:
        return f"the shape of {value.name} is unknown, not static"
    return f"the shape of {value.name} is {str(value.shape).replace('None', '?')}, not static"


def _domain(node: ir.Node) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _title(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if _domain(node) else node.op_type


def _decoder(node: ir.Node) -> Callable[..., Decoded] | None:
    return None if _domain(node) else DECODERS.get(node.op_type)
