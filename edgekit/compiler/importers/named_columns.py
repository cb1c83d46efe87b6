"""Pipelines of scikit-learn on tables with named columns: the table becomes one row of numbers.

    ColumnTransformer(scale: flow, pressure; one-hot: site)    =>    X: float32[1, 3], site as 0 or 1

A column of strings is the index of its category, which the encoder's own list gives.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

EXAMPLE_ROWS = 8
"""Rows with valid categories, for the comparison with the original."""


class ColumnTable(NamedTuple):
    """Columns of the table that a model was fitted on.

    Attributes:
        names: Names of the columns, in the order of the table.
        categories: Categories of the columns of strings, by name.
        numbers: Categories of the columns of numbers that an encoder takes, by name.
        unused: Columns that no step takes.
    """

    names: tuple[str, ...]
    categories: Mapping[str, Array]
    numbers: Mapping[str, Array]
    unused: frozenset[str]

    def note(self) -> str:
        indices = (
            f"{name} is an index into {', '.join(map(str, values))}"
            for name, values in self.categories.items()
        )
        return "; ".join([f"the columns of X are {', '.join(self.names)}", *indices])

    def decoded(self, x: Array) -> Any:
        """Return rows of numbers as a table, with the strings of its categories."""
        import pandas

        columns = {}
        for name, values in zip(self.names, x.T, strict=True):
            if name in self.categories:
                categories = self.categories[name]
                missing = np.isnan(values)
                indices = np.clip(np.where(missing, 0, values).astype(int), 0, len(categories) - 1)
                values = np.where(missing, np.nan, categories.astype(object)[indices])
            columns[name] = values
        return pandas.DataFrame(columns)

    def encoded(self, table: Any) -> Array:
        rows = np.full((len(table), len(self.names)), np.nan, np.float32)
        for number, name in enumerate(self.names):
            values = np.asarray(table[name])
            if name in self.categories:
                indices = {str(value): index for index, value in enumerate(self.categories[name])}
                rows[:, number] = [indices.get(str(value), -1) for value in values]
            elif name in self.unused:
                rows[:, number] = 0
            else:
                rows[:, number] = values
        return rows

    def example(self) -> Array:
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((EXAMPLE_ROWS, len(self.names))).astype(np.float32)
        for number, name in enumerate(self.names):
            if name in self.categories:
                rows[:, number] = rng.integers(0, len(self.categories[name]), EXAMPLE_ROWS)
            elif name in self.numbers:
                rows[:, number] = rng.choice(self.numbers[name], EXAMPLE_ROWS)
        return rows


def numeric_model(model: Any) -> tuple[Any, ColumnTable] | None:
    """Return a copy of a model that takes rows of numbers, and the columns; None if they have no names.

    Raises:
        ModelError: a step takes strings that are not categories of an encoder.
    """
    first = model.steps[0][1] if hasattr(model, "steps") else model
    if type(first).__name__ != "ColumnTransformer" or not hasattr(first, "feature_names_in_"):
        return None
    names = tuple(map(str, first.feature_names_in_))
    plain = copy.deepcopy(model)
    transformer = plain.steps[0][1] if hasattr(plain, "steps") else plain
    categories: dict[str, Array] = {}
    numbers: dict[str, Array] = {}
    used: set[str] = set()
    transformers = []
    for label, step, columns in transformer.transformers_:
        if isinstance(columns, str):
            raise ModelError(
                f'{type(model).__name__}: its step {label} takes the column "{columns}" as a list of texts; '
                "EdgeKit builds models of numbers. Run that step in your app, and pass the steps behind it"
            )
        positions = [names.index(column) if isinstance(column, str) else int(column) for column in columns]
        used |= {names[position] for position in positions if step != "drop"}
        for number, values in _indexed_categories(step, label, type(model).__name__):
            name = names[positions[number]]
            if values.dtype.kind not in "OUS":
                numbers[name] = values
                continue
            if name in categories and not np.array_equal(categories[name], values):
                raise ModelError(f"{type(model).__name__}: two encoders have other categories of {name}")
            categories[name] = values
        transformers.append((label, step, positions))
    transformer.transformers_ = transformers
    for part in (plain, transformer):
        vars(part).pop("feature_names_in_", None)
    return plain, ColumnTable(names, categories, numbers, frozenset(names) - used)


def _indexed_categories(step: Any, label: str, model_name: str) -> Iterator[tuple[int, Array]]:
    """Replace strings of encoders by indices, in place; yield the encoders' columns and categories."""
    parts = [part for _, part in step.steps] if hasattr(step, "steps") else [step]
    encoders = [part for part in parts if hasattr(part, "categories_")]
    for encoder in encoders:
        strings = [np.asarray(values).dtype.kind in "OUS" for values in encoder.categories_]
        for number, values in enumerate(encoder.categories_):
            if not strings[number]:
                yield number, np.asarray(values)
                continue
            if not all(isinstance(value, str) for value in values):
                raise ModelError(
                    f"{model_name}: step {label} has categories that are not all strings; fill missing "
                    'values before it, e.g. SimpleImputer(strategy="most_frequent")'
                )
            for imputer in parts:
                if isinstance(getattr(imputer, "statistics_", None), np.ndarray):
                    imputer.statistics_[number] = list(values).index(imputer.statistics_[number])
            yield number, np.asarray(values)
        encoder.categories_ = [
            np.arange(len(values), dtype=np.float64) if is_string else values
            for values, is_string in zip(encoder.categories_, strings, strict=True)
        ]
    for part in parts:
        statistics = getattr(part, "statistics_", None)
        if isinstance(statistics, np.ndarray) and statistics.dtype.kind == "O":
            part.statistics_ = statistics.astype(np.float64)


def with_unknown_categories(onnx_file: bytes) -> bytes:
    """Return the model with one-hot encoders that make zeros of an unknown category, on every engine; else
    ONNX Runtime fails."""
    import onnx

    proto = onnx.ModelProto.FromString(onnx_file)
    for node in proto.graph.node:
        for attribute in node.attribute if node.op_type == "OneHotEncoder" else ():
            if attribute.name == "zeros":
                attribute.i = 1
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
