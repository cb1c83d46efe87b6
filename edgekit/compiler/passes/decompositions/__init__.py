"""Decompositions of ops that have no ONNX function body, or only an inefficient one.

``expand_functions`` applies them to nodes that a target does not support. A decomposition depends on one node
with known shapes and constants. It returns None if it does not support the node, in which case ONNX's
function body is used if there is one; or raises ``Inexpressible`` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from edgekit.compiler.passes.decompositions.attention import attention
from edgekit.compiler.passes.decompositions.convolutions import conv_3d, conv_transpose
from edgekit.compiler.passes.decompositions.counting import tfidf
from edgekit.compiler.passes.decompositions.einsum import einsum
from edgekit.compiler.passes.decompositions.integers import (
    bit_shift,
    bitwise,
    bitwise_not,
    boolean_extreme,
    cum_sum,
    equal,
    mat_mul,
)
from edgekit.compiler.passes.decompositions.linear_algebra import det
from edgekit.compiler.passes.decompositions.linear_attention import linear_attention
from edgekit.compiler.passes.decompositions.linear_models import linear_classifier, linear_regressor
from edgekit.compiler.passes.decompositions.normalization import (
    batch_normalization,
    group_normalization,
    rms_normalization,
)
from edgekit.compiler.passes.decompositions.placing import col2im, eye_like, max_unpool
from edgekit.compiler.passes.decompositions.pooling import average_pool, lp_pool, max_pool
from edgekit.compiler.passes.decompositions.quantized import (
    conv_integer,
    dequantize_linear,
    mat_mul_integer,
    q_linear_conv,
    q_linear_mat_mul,
    quantize_linear,
)
from edgekit.compiler.passes.decompositions.recurrent import gru, lstm, rnn
from edgekit.compiler.passes.decompositions.sampling import deform_conv, grid_sample
from edgekit.compiler.passes.decompositions.selection import (
    arg_extreme,
    compress,
    hardmax,
    one_hot,
    pad,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
    slice_by_axis,
)
from edgekit.compiler.passes.decompositions.support_vectors import svm_classifier, svm_regressor
from edgekit.compiler.passes.decompositions.tables import (
    array_feature_extractor,
    binarizer,
    imputer,
    label_encoder,
    normalizer,
    scaler,
)
from edgekit.compiler.passes.decompositions.trees import tree_classifier, tree_regressor

Write = Callable[[ir.Node], onnx.GraphProto | None]

BODIES: Mapping[tuple[str, str], Write] = {
    ("", "ArgMax"): arg_extreme,
    ("", "ArgMin"): arg_extreme,
    ("", "Attention"): attention,
    ("", "AveragePool"): average_pool,
    ("", "BatchNormalization"): batch_normalization,
    ("", "BitShift"): bit_shift,
    ("", "BitwiseAnd"): bitwise,
    ("", "BitwiseNot"): bitwise_not,
    ("", "BitwiseOr"): bitwise,
    ("", "BitwiseXor"): bitwise,
    ("", "Col2Im"): col2im,
    ("", "Compress"): compress,
    ("", "Conv"): conv_3d,
    ("", "ConvInteger"): conv_integer,
    ("", "ConvTranspose"): conv_transpose,
    ("", "CumSum"): cum_sum,
    ("", "DeformConv"): deform_conv,
    ("", "DequantizeLinear"): dequantize_linear,
    ("", "Det"): det,
    ("", "Einsum"): einsum,
    ("", "Equal"): equal,
    ("", "EyeLike"): eye_like,
    ("", "GRU"): gru,
    ("", "GridSample"): grid_sample,
    ("", "GroupNormalization"): group_normalization,
    ("", "Hardmax"): hardmax,
    ("", "LSTM"): lstm,
    ("", "LinearAttention"): linear_attention,
    ("", "LpPool"): lp_pool,
    ("", "MatMul"): mat_mul,
    ("", "MatMulInteger"): mat_mul_integer,
    ("", "MaxPool"): max_pool,
    ("", "MaxUnpool"): max_unpool,
    ("", "OneHot"): one_hot,
    ("", "Pad"): pad,
    ("", "QLinearConv"): q_linear_conv,
    ("", "QLinearMatMul"): q_linear_mat_mul,
    ("", "QuantizeLinear"): quantize_linear,
    ("", "RMSNormalization"): rms_normalization,
    ("", "RNN"): rnn,
    ("", "ReduceMax"): boolean_extreme,
    ("", "ReduceMin"): boolean_extreme,
    ("", "ReverseSequence"): reverse_sequence,
    ("", "ScatterElements"): scatter_elements,
    ("", "ScatterND"): scatter_nd,
    ("", "Slice"): slice_by_axis,
    ("", "TfIdfVectorizer"): tfidf,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): array_feature_extractor,
    ("ai.onnx.ml", "Binarizer"): binarizer,
    ("ai.onnx.ml", "Imputer"): imputer,
    ("ai.onnx.ml", "LabelEncoder"): label_encoder,
    ("ai.onnx.ml", "LinearClassifier"): linear_classifier,
    ("ai.onnx.ml", "LinearRegressor"): linear_regressor,
    ("ai.onnx.ml", "Normalizer"): normalizer,
    ("ai.onnx.ml", "SVMClassifier"): svm_classifier,
    ("ai.onnx.ml", "SVMRegressor"): svm_regressor,
    ("ai.onnx.ml", "Scaler"): scaler,
    ("ai.onnx.ml", "TreeEnsemble"): tree_regressor,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): tree_classifier,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): tree_regressor,
}
"""(Domain, op) -> its decomposition."""
