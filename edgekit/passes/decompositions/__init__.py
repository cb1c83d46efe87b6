"""Decompositions of ops that have no ONNX function body, or only an inefficient one.

``expand_functions`` applies them to nodes that a target does not support. A decomposition depends on one node
with known shapes and constants. It returns None if it does not support the node, in which case ONNX's
function body is used if there is one; or raises ``Inexpressible`` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from edgekit.passes.decompositions.attention import attention
from edgekit.passes.decompositions.counting import tfidf
from edgekit.passes.decompositions.einsum import einsum
from edgekit.passes.decompositions.linear_algebra import det
from edgekit.passes.decompositions.linear_models import linear_classifier, linear_regressor
from edgekit.passes.decompositions.normalization import group_normalization, rms_normalization
from edgekit.passes.decompositions.placing import col2im, eye_like, max_unpool
from edgekit.passes.decompositions.quantized import (
    conv_integer,
    mat_mul_integer,
    q_linear_conv,
    q_linear_mat_mul,
)
from edgekit.passes.decompositions.recurrent import gru, lstm, rnn
from edgekit.passes.decompositions.sampling import deform_conv, grid_sample
from edgekit.passes.decompositions.support_vectors import svm_classifier, svm_regressor
from edgekit.passes.decompositions.tables import (
    array_feature_extractor,
    binarizer,
    imputer,
    label_encoder,
    normalizer,
    scaler,
)
from edgekit.passes.decompositions.trees import tree_classifier, tree_regressor
from edgekit.passes.decompositions.volumes import conv_3d

Write = Callable[[ir.Node], onnx.GraphProto | None]

BODIES: Mapping[tuple[str, str], Write] = {
    ("", "Attention"): attention,
    ("", "Col2Im"): col2im,
    ("", "Conv"): conv_3d,
    ("", "ConvInteger"): conv_integer,
    ("", "DeformConv"): deform_conv,
    ("", "Det"): det,
    ("", "Einsum"): einsum,
    ("", "GridSample"): grid_sample,
    ("", "EyeLike"): eye_like,
    ("", "GRU"): gru,
    ("", "GroupNormalization"): group_normalization,
    ("", "LSTM"): lstm,
    ("", "MatMulInteger"): mat_mul_integer,
    ("", "MaxUnpool"): max_unpool,
    ("", "QLinearConv"): q_linear_conv,
    ("", "QLinearMatMul"): q_linear_mat_mul,
    ("", "RMSNormalization"): rms_normalization,
    ("", "RNN"): rnn,
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
    ("ai.onnx.ml", "TreeEnsembleClassifier"): tree_classifier,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): tree_regressor,
}
"""(Domain, op) -> its decomposition."""
