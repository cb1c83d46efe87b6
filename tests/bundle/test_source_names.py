from __future__ import annotations

import pytest

from edgekit.bundle import Bundle
from edgekit.bundle.source_names import CanonicalNode, SourceNames, SourceNode, read_source_names
from edgekit.errors import BundleError
from edgekit.system.formats.strict_json import encode
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import small_bundle

CONV, NORM, RELU, ADD = (SourceNode(name.lower(), name, "") for name in ("Conv", "Norm", "Relu", "Add"))
CHAIN = SourceNames(
    [
        CanonicalNode("conv", ("b",), (NORM, CONV), ()),
        CanonicalNode("relu", ("c",), (RELU,), (0,)),
        CanonicalNode("add", ("y",), (ADD,), (1, 0)),
    ]
)


def test_a_fusion_is_called_by_its_layer() -> None:
    assert CHAIN.of_each([("conv",)]) == [(CONV, NORM)]


def test_endings_of_an_engine_are_taken_off() -> None:
    assert CHAIN.of_each([("b_nchwc",), ("add/WithoutBiases",), ("another",)])[::2] == [(CONV, NORM), ()]
    assert CHAIN.of_each([("add/fused",)])[0][0] == CONV  # it runs all, as nobody else is named


def test_what_nobody_names_runs_in_what_reads_it() -> None:
    assert CHAIN.of_each([("c",), ("y",)]) == [(CONV, RELU, NORM), (ADD,)]
    assert CHAIN.of_each([("conv",), ("c",), ("y",)]) == [(CONV, NORM), (RELU,), (ADD,)]


def test_an_old_bundle_has_no_names() -> None:
    assert read_source_names(small_bundle([])).of_each([("conv",)]) == [()]


def _bundle(table: Json) -> Bundle:
    made = small_bundle([])
    entries = {e["name"]: bytes(made.read(e["name"])) for e in made.manifest["entries"]}
    manifest = {**made.manifest, "extensions": {"source_names": "source-names.json"}}
    return Bundle.create(manifest, {**entries, "source-names.json": encode(table)})


def test_what_is_left_out_is_filled_in() -> None:
    table = {"source": [["/stem/conv/Conv", "Conv"]], "nodes": [["", ["v"], [0], []]]}
    node = SourceNode("/stem/conv/Conv", "Conv", "stem.conv")
    assert read_source_names(_bundle(table)).of_each([("v",), ("/stem/conv/Conv",)]) == [(node,), (node,)]


@pytest.mark.parametrize(
    "table",
    [
        [],
        {"nodes": []},
        {"source": [["a"]], "nodes": []},
        {"source": [], "nodes": [["a", [], [7], []]]},
        {"source": [], "nodes": [["a", [], [], [7]]]},
        {"source": [], "nodes": [["a", [], []]]},
    ],
)
def test_a_table_of_another_form_is_refused(table: Json) -> None:
    with pytest.raises(BundleError, match="its names of source nodes can't be read"):
        read_source_names(_bundle(table))


def test_an_entry_that_is_not_there() -> None:
    made = _bundle({"source": [], "nodes": []})
    made.manifest["extensions"]["source_names"] = "another"
    with pytest.raises(BundleError, match="has no entry 'another'"):
        read_source_names(made)


def test_a_node_alone_has_the_source_node_that_makes_its_result() -> None:
    conv, relu = SourceNode("Conv_1", "Conv", ""), SourceNode("Relu_2", "Relu", "")
    names = SourceNames(
        [CanonicalNode("Conv_1", ("c",), (conv,), ()), CanonicalNode("Relu_2", ("r",), (relu,), (0,))]
    )
    assert names.maker("r") == relu  # and not the Conv that it reads
    assert names.maker("c") == conv
    assert names.maker("absent") is None
