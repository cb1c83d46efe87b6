"""The ops of scikit-learn's models in plain ops, each against ONNX Runtime's kernel for it."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.decompositions.trees import MOST_LEVELS
from edgekit.compiler.passes.expand_functions import expand_functions
from edgekit.diagnostics import Inexpressible
from tests.compiler.passes.meaning import folded
from tests.compiler.passes.written_out import written_out
from tests.fixtures.ml_models import CLASSES, stumps, vectors

pytestmark = pytest.mark.needs_ort

TWO_OUTPUTS = (
    "g (float[{rows},3] x) => (int64[{rows}] label, float[{rows},{scores}] scores) {{ label, scores = "
)


def refusal(text: str) -> Inexpressible:
    reasons: dict[str, Inexpressible] = {}
    assert not expand_functions(folded(text), lambda node: bool(node.domain), reasons=reasons)
    (reason,) = reasons.values()
    return reason


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", ["1,4", "3,5", "6"])
def test_normalizer(norm: str, shape: str) -> None:
    written_out(
        f'g (float[{shape}] x) => (float[{shape}] y) {{ y = ai.onnx.ml.Normalizer <norm = "{norm}"> (x) }}'
    )


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_of_zeros(norm: str) -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{
        z = Mul (x, zero)  y = ai.onnx.ml.Normalizer <norm = "{norm}"> (z) }}"""
    assert "Where" in written_out(text, zero=0.0)


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("float", "imputed_value_floats = [5.0, 6.0, 7.0], replaced_value_float = 0.0"),
        ("float", "imputed_value_floats = [5.0], replaced_value_float = 0.0"),
        ("int64", "imputed_value_int64s = [5, 6, 7], replaced_value_int64 = 1"),
    ],
)
def test_imputer(dtype: str, attributes: str) -> None:
    written_out(f"g ({dtype}[4,3] x) => ({dtype}[4,3] y) {{ y = ai.onnx.ml.Imputer <{attributes}> (x) }}")


def test_imputer_of_not_a_number() -> None:
    attributes = "imputed_value_floats = [5.0, 6.0], replaced_value_float = nan"
    text = f"""g (float[2,2] x) => (float[2,2] y) {{
        root = Sqrt (x)  y = ai.onnx.ml.Imputer <{attributes}> (root) }}"""
    assert "IsNaN" in written_out(text)


@pytest.mark.parametrize(
    "given", ["offset = [1.0, 2.0, 3.0], scale = [0.5, 2.0, 0.1]", "offset = [1.0], scale = [2.0]"]
)
def test_scaler(given: str) -> None:
    written_out(f"g (float[2,3] x) => (float[2,3] y) {{ y = ai.onnx.ml.Scaler <{given}> (x) }}")


@pytest.mark.parametrize(
    ("types", "attributes"),
    [
        (("int64", "int64"), "keys_int64s = [0, 1, -1], values_int64s = [10, 20, 30], default_int64 = 7"),
        (
            ("int64", "float"),
            "keys_int64s = [0, 1, -1], values_floats = [0.5, 2.5, 3.5], default_float = 9.0",
        ),
        (("float", "int64"), "keys_floats = [0.0, 1.0, 2.0], values_int64s = [4, 5, 6]"),
    ],
)
def test_label_encoder(types: tuple[str, str], attributes: str) -> None:
    cast = {"int64": 7, "float": 1}[types[0]]
    written_out(
        f"""g (float[3,4] x) => ({types[1]}[3,4] y) {{
        whole = Round (x)  k = Cast <to = {cast}> (whole)  y = ai.onnx.ml.LabelEncoder <{attributes}> (k)
    }}"""
    )


def test_label_encoder_of_strings_is_refused() -> None:
    text = """g (int64[2] x) => (int64[2] z) {
        y = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["a", "b"]> (x)
        z = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [3, 4]> (y)
    }"""
    reasons: dict[str, Inexpressible] = {}
    assert not expand_functions(folded(text), lambda node: bool(node.domain), reasons=reasons)
    assert {reason.reason for reason in reasons.values()} == {"reads or writes strings"}


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("rows", [1, 4])
def test_linear_classifier(post: str, rows: int) -> None:
    several = TWO_OUTPUTS.format(rows=rows, scores=3) + (
        f"ai.onnx.ml.LinearClassifier <coefficients = [0.5, -1.0, 2.0, 1.0, 0.1, -0.3, -2.0, 0.4, 0.7],"
        f' intercepts = [0.1, 0.2, -0.3], classlabels_ints = [3, 5, 9], post_transform = "{post}"> (x) }}'
    )
    assert written_out(several)[0] == "Gemm"
    one = TWO_OUTPUTS.format(rows=rows, scores=2) + (
        f"ai.onnx.ml.LinearClassifier <coefficients = [0.5, -1.0, 2.0], intercepts = [0.1],"
        f' classlabels_ints = [3, 5], post_transform = "{post}"> (x) }}'
    )
    assert "Greater" in written_out(one)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("intercepts", ["", "intercepts = [0.5, -1.0], "])
def test_linear_regressor(post: str, intercepts: str) -> None:
    written_out(
        f"""g (float[3,2] x) => (float[3,2] y) {{ y = ai.onnx.ml.LinearRegressor <targets = 2,
        coefficients = [0.5, 1.0, 2.0, -1.0], {intercepts}post_transform = "{post}"> (x) }}"""
    )


@pytest.mark.parametrize("shape", ["3", "1,3", "4,3"])
def test_linear_regressor_of_a_vector(shape: str) -> None:
    rows = shape.split(",")[0] if "," in shape else "1"
    text = f"g (float[{shape}] x) => (float[{rows},1] y) {{ y = ai.onnx.ml.LinearRegressor"
    written_out(text + " <coefficients = [0.5, 1.0, 2.0]> (x) }")


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
@pytest.mark.parametrize("post", ["NONE", "SOFTMAX"])
@pytest.mark.parametrize("rows", [1, 5])
def test_tree_classifier(mode: str, post: str, rows: int) -> None:
    attributes = stumps("class", CLASSES, seed=1, mode=mode)
    text = TWO_OUTPUTS.format(rows=rows, scores=3) + (
        f'ai.onnx.ml.TreeEnsembleClassifier <{attributes}, post_transform = "{post}",'
        " classlabels_int64s = [3, 5, 9]> (x) }"
    )
    assert written_out(text).count("Where") == 2  # two levels


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize(
    ("weights", "labels"), [(1, "[3, 5]"), (1, "[3, 5], base_values = [0.25]"), (2, "[0, 1]")]
)
def test_tree_classifier_of_two_classes(positive: bool, post: str, weights: int, labels: str) -> None:
    text = TWO_OUTPUTS.format(rows=5, scores=2) + (
        f"ai.onnx.ml.TreeEnsembleClassifier <{stumps('class', weights, seed=2, positive=positive)},"
        f' classlabels_int64s = {labels}, post_transform = "{post}"> (x) }}'
    )
    written_out(text)


def test_a_deep_tree_is_refused() -> None:
    deep = MOST_LEVELS + 1
    inner = range(deep)
    nodes = {
        "nodes_treeids": [0] * (2 * deep + 1),
        "nodes_nodeids": list(range(2 * deep + 1)),
        "nodes_featureids": [0] * (2 * deep + 1),
        "nodes_values": [float(k) for k in inner] + [0.0] * (deep + 1),
        "nodes_truenodeids": [deep + k for k in inner] + [0] * (deep + 1),
        "nodes_falsenodeids": [k + 1 for k in range(deep - 1)] + [2 * deep] + [0] * (deep + 1),
        "class_treeids": [0] * (deep + 1),
        "class_nodeids": list(range(deep, 2 * deep + 1)),
        "class_ids": [k % 3 for k in range(deep + 1)],
        "class_weights": [1.0] * (deep + 1),
    }
    modes = ", ".join(['"BRANCH_LEQ"'] * deep + ['"LEAF"'] * (deep + 1))
    attributes = ", ".join(f"{name} = {values}" for name, values in nodes.items())
    text = TWO_OUTPUTS.format(rows=1, scores=3) + (
        f"ai.onnx.ml.TreeEnsembleClassifier <{attributes}, nodes_modes = [{modes}],"
        " classlabels_int64s = [3, 5, 9]> (x) }"
    )
    assert refusal(text).reason == f"its trees are {deep} levels deep; at most {MOST_LEVELS} are supported"


@pytest.mark.parametrize("kind", ["SUM", "AVERAGE"])
@pytest.mark.parametrize("base", ["", "base_values = [0.25, 0.5], "])
def test_tree_regressor(kind: str, base: str) -> None:
    attributes = stumps("target", 2, seed=3, positive=False)
    written_out(
        f"""g (float[4,3] x) => (float[4,2] y) {{ y = ai.onnx.ml.TreeEnsembleRegressor <{attributes}, {base}
        n_targets = 2, aggregate_function = "{kind}"> (x) }}"""
    )


MISSING = "nodes_missing_value_tracks_true = [0, 0, 0, 0, 1, 0, 0, 0, 0]"


@pytest.mark.parametrize("rows", [1, 40])
def test_missing_values_take_the_branch_that_the_node_names(rows: int) -> None:
    """Roots of negative numbers are missing."""
    text = f"""g (float[{rows},3] x) => (float[{rows},2] y) {{ root = Sqrt (x)
        y = ai.onnx.ml.TreeEnsembleRegressor <{stumps("target", 2, seed=3)}, {MISSING}, n_targets = 2>
        (root) }}"""
    assert "IsNaN" in written_out(text)


def test_nodes_with_different_comparisons() -> None:
    attributes = stumps("target", 2, seed=3, positive=False).replace("BRANCH_LEQ", "BRANCH_NEQ", 1)
    attributes = attributes.replace("BRANCH_LEQ", "BRANCH_GT", 1)
    text = f"""g (float[40,3] x) => (float[40,2] y) {{ whole = Round (x)
        y = ai.onnx.ml.TreeEnsembleRegressor <{attributes}, n_targets = 2> (whole) }}"""
    assert written_out(text).count("And") == 3 * 2  # comparisons by levels


ENSEMBLE = """g (float[{rows},2] x) => (float[{rows},{targets}] y) {{ whole = Round (x)
    y = ai.onnx.ml.TreeEnsemble <n_targets = {targets}, {attributes}> (whole) }}"""
SINGLE = """tree_roots = [0], nodes_featureids = [0, 1, 0], nodes_modes = uint8[3] {0, 1, 3},
    nodes_splits = float[3] {0.5, -0.5, 1.5}, nodes_truenodeids = [1, 0, 1], nodes_trueleafs = [0, 1, 1],
    nodes_falsenodeids = [2, 2, 3], nodes_falseleafs = [0, 1, 1], leaf_targetids = [0, 1, 0, 1],
    leaf_weights = float[4] {5.25, 12.125, -12.25, 7.5}"""
MEMBERS = """tree_roots = [0, 3], nodes_featureids = [0, 0, 0, 1], nodes_modes = uint8[4] {0, 6, 6, 0},
    nodes_splits = float[4] {2, 0, 0, 0}, nodes_trueleafs = [0, 1, 1, 1], nodes_truenodeids = [1, 0, 1, 2],
    nodes_falseleafs = [1, 0, 1, 1], nodes_falsenodeids = [2, 2, 3, 2], leaf_targetids = [0, 1, 2, 3],
    leaf_weights = float[4] {1, 10, 1000, 100}, membership_values = float[6] {-1, 0, 2, nan, 1, nan}"""


@pytest.mark.parametrize("aggregate", [0, 1])
def test_tree_ensemble(aggregate: int) -> None:
    attributes = f"{SINGLE}, aggregate_function = {aggregate}"
    written_out(ENSEMBLE.format(rows=40, targets=2, attributes=attributes))


@pytest.mark.parametrize("rows", [1, 40])
def test_tree_ensemble_of_sets(rows: int) -> None:
    """A set is a chain of comparisons; the second tree is one leaf, to which both branches lead."""
    found = written_out(ENSEMBLE.format(rows=rows, targets=4, attributes=MEMBERS))
    assert found.count("Where") == 5  # one comparison, then three, then one


def test_tree_ensemble_with_missing_values() -> None:
    attributes = f"{SINGLE}, nodes_missing_value_tracks_true = [1, 0, 0]"
    text = ENSEMBLE.format(rows=40, targets=2, attributes=attributes).replace("Round", "Sqrt")
    assert "IsNaN" in written_out(text)


KERNELS = ["LINEAR", "RBF", "SIGMOID", "POLY"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [1, 4])
def test_svm_classifier(kernel: str, rows: int) -> None:
    text = TWO_OUTPUTS.format(rows=rows, scores=6) + (
        f'ai.onnx.ml.SVMClassifier <{vectors([2, 3, 1, 2])}, kernel_type = "{kernel}",'
        " kernel_params = [0.5, 0.25, 3.0], classlabels_ints = [3, 5, 9, 11]> (x) }"
    )
    assert "ArgMax" in written_out(text, 100)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
def test_svm_classifier_of_two_classes(post: str, positive: bool) -> None:
    attributes = vectors([2, 3])
    if positive:  # for which the trees' classifier has another threshold
        attributes = attributes.replace(
            "coefficients = [", "coefficients = [0.5, 0.25, 0.1, 1.0, 2.0], unused = ["
        )
        attributes = attributes.partition(", unused")[0] + ", rho" + attributes.partition("rho")[2]
    text = TWO_OUTPUTS.format(rows=200, scores=2) + (
        f'ai.onnx.ml.SVMClassifier <{attributes}, kernel_type = "RBF", kernel_params = [0.1, 0.0, 3.0],'
        f' classlabels_ints = [3, 5], post_transform = "{post}"> (x) }}'
    )
    written_out(text, 100)


def test_svm_classifier_with_probabilities_is_refused() -> None:
    text = TWO_OUTPUTS.format(rows=1, scores=3) + (
        f'ai.onnx.ml.SVMClassifier <{vectors([2, 3, 1])}, kernel_type = "LINEAR",'
        " prob_a = [1.0, 1.0, 1.0], prob_b = [0.0, 0.0, 0.0], classlabels_ints = [3, 5, 9]> (x) }"
    )
    reason = refusal(text)
    assert reason.reason == "its probabilities need an iteration (libsvm's pairwise coupling)"
    assert (
        reason.fix == "build it for ort, or train with probability=False: the decision function is supported"
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    rng = np.random.default_rng(4)
    support = rng.standard_normal(15).round(2).tolist()
    written_out(
        f"""g (float[4,3] x) => (float[4,1] y) {{ y = ai.onnx.ml.SVMRegressor <n_supports = 5,
        coefficients = [1.0, -0.5, 0.25, 2.0, -1.0], support_vectors = {support}, rho = [0.125],
        kernel_type = "{kernel}", kernel_params = [0.5, 0.25, 3.0], one_class = {one_class}> (x) }}""",
        100,
    )


REFUSED = {
    "post_transform PROBIT cannot be expressed in ONNX's standard operators": (
        TWO_OUTPUTS.format(rows=1, scores=2) + "ai.onnx.ml.LinearClassifier <intercepts = [0.1], "
        'coefficients = [0.5, -1.0, 2.0], classlabels_ints = [3, 5], post_transform = "PROBIT"> (x) }'
    ),
    "has two classes and weights for the second, for which ONNX Runtime returns labels 0 and 1 whatever the "
    "labels are: here 3, 5": (
        TWO_OUTPUTS.format(rows=1, scores=2)
        + f"ai.onnx.ml.TreeEnsembleClassifier <{stumps('class', 2, seed=2)}, "
        "classlabels_int64s = [3, 5]> (x) }"
    ),
    "aggregate_function MIN cannot be expressed in ONNX's standard operators": (
        "g (float[4,3] x) => (float[4,2] y) { y = ai.onnx.ml.TreeEnsembleRegressor "
        f'<{stumps("target", 2, seed=3)}, n_targets = 2, aggregate_function = "MIN"> (x) }}'
    ),
    "aggregate_function MAX cannot be expressed in ONNX's standard operators": (
        ENSEMBLE.format(rows=1, targets=2, attributes=f"{SINGLE}, aggregate_function = 3")
    ),
    # ONNX's 1 is softmax; ONNX Runtime computes the logistic function.
    "has post_transform 1, which ONNX and ONNX Runtime 1.32 number differently": (
        ENSEMBLE.format(rows=1, targets=2, attributes=f"{SINGLE}, post_transform = 1")
    ),
    "its input is in double precision": (
        "g (double[1,3] x) => (float[1,1] y) { "
        "y = ai.onnx.ml.LinearRegressor <coefficients = [0.5, 1.0, 2.0]> (x) }"
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_exact_form_is_refused(reason: str) -> None:
    assert refusal(REFUSED[reason]).reason == reason


def test_a_label_that_nothing_reads_may_be_a_string() -> None:
    text = """g (float[1,3] x) => (float[1,2] y) { label, y = ai.onnx.ml.LinearClassifier <intercepts = [0.1],
        coefficients = [0.5, -1.0, 2.0], classlabels_strings = ["a", "b"]> (x) }"""
    assert "Gather" not in written_out(text)
