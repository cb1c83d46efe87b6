"""Runs a program: every value is checked against its declaration and rounded to its declared type.

Operators compute in float32 (what a wide accumulator does); each result is rounded to the type that the
program declares for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array
from edgekit_coreml.interpreter import kernels_data, kernels_elementwise, kernels_layers
from edgekit_coreml.interpreter.one_node import converted, on_threads
from edgekit_coreml.interpreter.program import MilProgram, Name, Op

Trace = Callable[[Op, str, Array], None]
"""Called with the operator, the name and the array of every value that is computed."""
Narrow = Callable[[Op, str, Any], Any]
"""Called with the operator, the parameter ("" for a result) and the operand; gives what is used instead."""
KERNELS: Mapping[str, Callable[..., Any]] = {
    **kernels_elementwise.KERNELS,
    **kernels_data.KERNELS,
    **kernels_layers.KERNELS,
}
"""MIL operator -> the function that computes it; parameters have MIL's names."""
WRITE_STATE = "write_state"
HALF_LIMIT = 65504.0
"""The largest finite float16."""
UNTYPED = ("string", "other")
"""Declared types of values that are not arrays of numbers: a label, a dictionary of scores."""


@dataclass(frozen=True)
class ReadyOperator:
    """Operator that is ready to run.

    Attributes:
        fixed: Operands that are known: literals and constants.
        named: Parameter -> the name, or names, of values from earlier steps.
        last: Values that nothing reads after this step.
    """

    op: Op
    kernel: Callable[..., Any]
    fixed: Mapping[str, Any]
    named: Mapping[str, str | tuple[str | Any, ...]]
    last: tuple[str, ...]


class Executor:
    """Program that is ready to run, any number of times.

    Attributes:
        extremes: Value -> the largest magnitude seen before it was rounded to float16, over all runs.
        states: Name of a state -> its content; zeros at first.

    Raises:
        EngineError: an operator has no kernel, or a value has no producer; all are named.
    """

    def __init__(self, program: MilProgram, threads: int = 1) -> None:
        missing = sorted({op.type for op in program.ops} - set(KERNELS) - {"const"})
        if missing:
            raise EngineError(f"the reference executor has no kernel for {', '.join(missing)}")
        self.program = program
        self.extremes: dict[str, float] = {}
        self.states: dict[str, Array] = {
            name: np.zeros(declared.shape, declared.dtype)
            for name, declared in program.inputs.items()
            if declared.is_state
        }
        self._threads = threads
        self._constants: dict[str, Any] = {}
        self._steps: list[ReadyOperator] = []
        available = set(program.inputs)
        pending: list[tuple[Op, dict[str, Any], dict[str, Any]]] = []
        for op in program.ops:
            if op.type == "const":
                if "val" not in op.attributes or len(op.outputs) != 1:
                    raise EngineError("the program holds a const without a value")
                self._constants[op.outputs[0][0]] = op.attributes["val"]
                continue
            fixed, named = self._split(op, available)
            if not named:  # a constant expression: once, now
                results = _run(op, KERNELS[op.type], fixed)
                self._constants.update(zip((name for name, _ in op.outputs), results, strict=True))
                continue
            available |= {name for name, _ in op.outputs}
            pending.append((op, fixed, named))
        lost = [name for name in program.outputs if name not in available and name not in self._constants]
        if lost:
            raise EngineError(f"nothing makes the program's output {', '.join(lost)}")
        last_read: dict[str, int] = {}
        for number, (_, _, named) in enumerate(pending):
            for names in named.values():
                for name in names if isinstance(names, tuple) else (names,):
                    if isinstance(name, str):
                        last_read[name] = number
        outputs = set(program.outputs)
        for number, (op, fixed, named) in enumerate(pending):
            done = tuple(n for n, index in last_read.items() if index == number and n not in outputs)
            self._steps.append(ReadyOperator(op, KERNELS[op.type], fixed, named, done))

    def _split(self, op: Op, available: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        fixed, named = dict(op.attributes), {}
        for key, operands in op.operands.items():
            values: list[Any] = []
            for operand in operands:
                if not isinstance(operand, Name):
                    values.append(operand)
                elif operand.name in self._constants:
                    values.append(self._constants[operand.name])
                elif operand.name in available:
                    values.append(operand)
                else:
                    raise EngineError(f"{op.type} reads {operand.name!r}, which nothing makes before it")
            several = len(values) != 1 or key == "values"
            if any(isinstance(one, Name) for one in values):
                names = tuple(one.name if isinstance(one, Name) else one for one in values)
                named[key] = names if several else names[0]
            else:
                fixed[key] = values if several else values[0]
        return fixed, named

    @property
    def steps(self) -> list[Op]:
        """The operators that ``run`` computes, in order: without constants and what is computed from them."""
        return [step.op for step in self._steps]

    def run(
        self,
        feeds: Mapping[str, Array],
        trace: Trace | None = None,
        narrow: Narrow | None = None,
        before: int = 0,
        computed: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Run once.

        Args:
            feeds: Every input by its name in MIL, of the declared dtype and shape.
            narrow: Function that replaces operands and results, to simulate another program.
            computed: Values of the skipped steps, by name; may hold more.

        Raises:
            EngineError: an input does not fit, or a value is not of its declared shape.
        """
        values: dict[str, Any] = dict(computed or {})
        for name, declared in self.program.inputs.items():
            array = self.states[name] if declared.is_state else feeds.get(name)
            if array is None:
                raise EngineError(f"input {name} is missing; there are {', '.join(feeds)}")
            if array.dtype.name != declared.dtype or array.shape != declared.shape:
                raise EngineError(
                    f"input {name} is {array.dtype.name}{list(array.shape)}, declared as "
                    f"{declared.dtype}{list(declared.shape)}"
                )
            values[name] = array
        with np.errstate(all="ignore"), on_threads(self._threads):
            for step in self._steps[before:]:
                operands = dict(step.fixed)
                for key, names in step.named.items():
                    if isinstance(names, tuple):
                        operands[key] = [values[n] if isinstance(n, str) else n for n in names]
                    else:
                        operands[key] = values[names]
                if narrow is not None:
                    operands = {key: narrow(step.op, key, value) for key, value in operands.items()}
                results = _run(step.op, step.kernel, operands, self.extremes)
                if step.op.type == WRITE_STATE:
                    state = str(step.named["input"])
                    self.states[state] = values[state] = np.array(operands["data"])
                if narrow is not None:
                    results = [narrow(step.op, "", array) for array in results]
                for (name, _), array in zip(step.op.outputs, results, strict=True):
                    values[name] = array
                    if trace is not None:
                        trace(step.op, name, array)
                for name in step.last:
                    values.pop(name, None)
        return {
            name: np.asarray(values.get(name, self._constants.get(name))) for name in self.program.outputs
        }


def overflows(extremes: Mapping[str, float]) -> dict[str, float]:
    """Return the values that left float16's range, in the order of their computation."""
    return {name: size for name, size in extremes.items() if not size <= HALF_LIMIT}


def _run(
    op: Op,
    kernel: Callable[..., Any],
    operands: dict[str, Any],
    extremes: dict[str, float] | None = None,
) -> list[Array]:
    """Return one operator's outputs in the declared shapes and types."""
    try:
        returned = kernel(**operands)
    except EngineError:
        raise
    except Exception as problem:  # numpy and onnxruntime raise many classes for what does not fit
        story = " ".join(str(problem).split())[:300]
        name = op.outputs[0][0] if op.outputs else ""
        raise EngineError(f"{op.type} {name} can't be run: {story}") from None
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(results) != len(op.outputs):
        raise EngineError(f"{op.type} gives {len(results)} values, {len(op.outputs)} are declared")
    checked = []
    for (name, declared), result in zip(op.outputs, results, strict=True):
        array = np.asarray(result)
        if array.shape != declared.shape:
            raise EngineError(
                f"{op.type} {name} gives {list(array.shape)}, declared as {list(declared.shape)}"
            )
        if extremes is not None and declared.dtype == "float16" and array.dtype == np.float32 and array.size:
            extremes[name] = max(extremes.get(name, 0.0), float(array.max()), -float(array.min()))
        same = declared.dtype in UNTYPED or array.dtype == declared.dtype
        checked.append(array if same else converted(array, declared.dtype))
    return checked
