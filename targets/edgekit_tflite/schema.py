"""Schemas of .tflite files and of their metadata: enums and tables as text.

An operator's options table that is not listed has no fields. Left out are StableHLO's operators, which
EdgeKit neither reads nor writes, and what it only reads of the metadata (importer/metadata.py, by slots).

Sources: https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs
https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs
A test compares the first with the schema in the wheel ai-edge-litert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_ENUMS = """\
TensorType FLOAT32 FLOAT16 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 UINT64
  RESOURCE VARIANT UINT32 UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2
ActivationFunctionType NONE RELU RELU_N1_TO_1 RELU6 TANH SIGN_BIT
Padding SAME VALID
MirrorPadMode REFLECT SYMMETRIC
DimensionType DENSE SPARSE_CSR
SparseIndexVector NONE Int32Vector Uint16Vector Uint8Vector
QuantizationDetails NONE CustomQuantization BlockwiseQuantization MultiAxisQuantization
BuiltinOperator ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
  EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
  LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE
  RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
  EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND
  TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP
  TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG
  PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS
  EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR
  ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
  RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2
  ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH
  IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
  BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL
  COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE
  VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
  MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
  UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC
  STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP
  STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE
  STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
  STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER
  STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER
  STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD
  STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE
  STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
  STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
BuiltinOptions NONE Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions
  Pool2DOptions SVDFOptions RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions
  L2NormOptions LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions
  ReshapeOptions SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions PadOptions
  GatherOptions BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions
  DivOptions SqueezeOptions SequenceRNNOptions StridedSliceOptions ExpOptions TopKV2Options SplitOptions
  LogSoftmaxOptions CastOptions DequantizeOptions MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions
  PadV2Options GreaterOptions GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions
  TransposeConvOptions SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions NotEqualOptions
  ShapeOptions PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
  LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions
  FillOptions BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions
  UnidirectionalSequenceLSTMOptions FloorModOptions RangeOptions ResizeNearestNeighborOptions
  LeakyReluOptions SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions UniqueOptions
  ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions ReverseSequenceOptions
  MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions
  DepthToSpaceOptions NonMaxSuppressionV4Options NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options
  DensifyOptions SegmentSumOptions BatchMatMulOptions CumsumOptions CallOnceOptions BroadcastToOptions
  Rfft2dOptions Conv3DOptions HashtableOptions HashtableFindOptions HashtableImportOptions
  HashtableSizeOptions VarHandleOptions ReadVariableOptions AssignVariableOptions RandomOptions
  BucketizeOptions GeluOptions DynamicUpdateSliceOptions UnsortedSegmentProdOptions
  UnsortedSegmentMaxOptions UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options SignOptions
  BitcastOptions BitwiseXorOptions RightShiftOptions
ContentProperties NONE FeatureProperties ImageProperties
ProcessUnitOptions NONE NormalizationOptions
"""
"""Name of an enum, then its values from 0 on."""

_TABLES = """\
Model version:uint32 operatorCodes:[OperatorCode] subgraphs:[SubGraph] description:text buffers:[Buffer]
  metadataBuffer:[int32] metadata:[Metadata] signatureDefs:[SignatureDef]
  externalBufferGroups:[ExternalBufferGroup] externalBuffers:[ExternalBuffer]
OperatorCode deprecatedBuiltinCode:int8 customCode:text version:int32=1 builtinCode:int32
SubGraph tensors:[Tensor] inputs:[int32] outputs:[int32] operators:[Operator] name:text
  debugMetadataIndex:int32=-1
Tensor shape:[int32] type:int8 buffer:uint32 name:text quantization:QuantizationParameters isVariable:bool
  sparsity:SparsityParameters shapeSignature:[int32] hasRank:bool variantTensors:[VariantSubType]
  externalBuffer:uint32
Operator opcodeIndex:uint32 inputs:[int32] outputs:[int32] builtinOptionsType:uint8
  builtinOptions:BuiltinOptions customOptions:[uint8] customOptionsFormat:int8 mutatingVariableInputs:[bool]
  intermediates:[int32] largeCustomOptionsOffset:uint64 largeCustomOptionsSize:uint64 - -
  debugMetadataIndex:int32=-1
Buffer data:[uint8] offset:uint64 size:uint64
Metadata name:text buffer:uint32
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signatureKey:text - subgraphIndex:uint32
TensorMap name:text tensorIndex:uint32
ExternalBufferGroup name:text
ExternalBuffer id:uint32 group:uint32 offset:uint64 length:uint64 packing:text
VariantSubType shape:[int32] type:int8 hasRank:bool
QuantizationParameters min:[float32] max:[float32] scale:[float32] zeroPoint:[int64] detailsType:uint8
  details:QuantizationDetails quantizedDimension:int32
CustomQuantization custom:[uint8]
BlockwiseQuantization scales:int32 zeroPoints:int32 blockSize:int32 blockShape:[int32]
MultiAxisQuantization scales:int32 zeroPoints:int32 blockSize:int32 quantizedDimensions:[int32]
SparsityParameters traversalOrder:[int32] blockMap:[int32] dimMetadata:[DimensionMetadata]
DimensionMetadata format:int8 denseSize:int32 arraySegmentsType:uint8 arraySegments:SparseIndexVector
  arrayIndicesType:uint8 arrayIndices:SparseIndexVector
Int32Vector values:[int32]
Uint16Vector values:[uint16]
Uint8Vector values:[uint8]
Conv2DOptions padding:int8 strideW:int32 strideH:int32 fusedActivationFunction:int8 dilationWFactor:int32=1
  dilationHFactor:int32=1 quantizedBiasType:int8
Conv3DOptions padding:int8 strideD:int32 strideW:int32 strideH:int32 fusedActivationFunction:int8
  dilationDFactor:int32=1 dilationWFactor:int32=1 dilationHFactor:int32=1
Pool2DOptions padding:int8 strideW:int32 strideH:int32 filterWidth:int32 filterHeight:int32
  fusedActivationFunction:int8
DepthwiseConv2DOptions padding:int8 strideW:int32 strideH:int32 depthMultiplier:int32
  fusedActivationFunction:int8 dilationWFactor:int32=1 dilationHFactor:int32=1
ConcatEmbeddingsOptions numChannels:int32 numColumnsPerChannel:[int32] embeddingDimPerChannel:[int32]
LSHProjectionOptions type:int8
SVDFOptions rank:int32 fusedActivationFunction:int8 asymmetricQuantizeInputs:bool
RNNOptions fusedActivationFunction:int8 asymmetricQuantizeInputs:bool
SequenceRNNOptions timeMajor:bool fusedActivationFunction:int8 asymmetricQuantizeInputs:bool
BidirectionalSequenceRNNOptions timeMajor:bool fusedActivationFunction:int8 mergeOutputs:bool
  asymmetricQuantizeInputs:bool
FullyConnectedOptions fusedActivationFunction:int8 weightsFormat:int8 keepNumDims:bool
  asymmetricQuantizeInputs:bool quantizedBiasType:int8 quantSpec:[uint8]
SoftmaxOptions beta:float32
ConcatenationOptions axis:int32 fusedActivationFunction:int8
AddOptions fusedActivationFunction:int8 potScaleInt16:bool=1
MulOptions fusedActivationFunction:int8
L2NormOptions fusedActivationFunction:int8
LocalResponseNormalizationOptions radius:int32 bias:float32 alpha:float32 beta:float32
LSTMOptions fusedActivationFunction:int8 cellClip:float32 projClip:float32 kernelType:int8
  asymmetricQuantizeInputs:bool
UnidirectionalSequenceLSTMOptions fusedActivationFunction:int8 cellClip:float32 projClip:float32
  timeMajor:bool asymmetricQuantizeInputs:bool diagonalRecurrentTensors:bool
BidirectionalSequenceLSTMOptions fusedActivationFunction:int8 cellClip:float32 projClip:float32
  mergeOutputs:bool timeMajor:bool=1 asymmetricQuantizeInputs:bool
ResizeBilinearOptions - - alignCorners:bool halfPixelCenters:bool
ResizeNearestNeighborOptions alignCorners:bool halfPixelCenters:bool
CallOptions subgraph:uint32
ReshapeOptions newShape:[int32]
SkipGramOptions ngramSize:int32 maxSkipSize:int32 includeAllNgrams:bool
SpaceToDepthOptions blockSize:int32
DepthToSpaceOptions blockSize:int32
SubOptions fusedActivationFunction:int8 potScaleInt16:bool=1
DivOptions fusedActivationFunction:int8
EmbeddingLookupSparseOptions combiner:int8
GatherOptions axis:int32 batchDims:int32
ReducerOptions keepDims:bool
SqueezeOptions squeezeDims:[int32]
SplitOptions numSplits:int32
SplitVOptions numSplits:int32
StridedSliceOptions beginMask:int32 endMask:int32 ellipsisMask:int32 newAxisMask:int32 shrinkAxisMask:int32
  offset:bool
CastOptions inDataType:int8 outDataType:int8
ArgMaxOptions outputType:int8
ArgMinOptions outputType:int8
TransposeConvOptions padding:int8 strideW:int32 strideH:int32 fusedActivationFunction:int8
  quantizedBiasType:int8
SparseToDenseOptions validateIndices:bool
ShapeOptions outType:int8
FakeQuantOptions min:float32 max:float32 numBits:int32 narrowRange:bool
PackOptions valuesCount:int32 axis:int32
OneHotOptions axis:int32
UnpackOptions num:int32 axis:int32
LeakyReluOptions alpha:float32
MirrorPadOptions mode:int8
UniqueOptions idxOutType:int8=2
ReverseSequenceOptions seqDim:int32 batchDim:int32
IfOptions thenSubgraphIndex:int32 elseSubgraphIndex:int32
CallOnceOptions initSubgraphIndex:int32
WhileOptions condSubgraphIndex:int32 bodySubgraphIndex:int32
BatchMatMulOptions adjX:bool adjY:bool asymmetricQuantizeInputs:bool
CumsumOptions exclusive:bool reverse:bool
HashtableOptions tableId:int32 keyDtype:int8 valueDtype:int8
VarHandleOptions container:text sharedName:text
RandomOptions seed:int64 seed2:int64
BucketizeOptions boundaries:[float32]
GeluOptions approximate:bool
ModelMetadata name:text description:text version:text subgraphMetadata:[SubGraphMetadata] author:text
  license:text associatedFiles:[AssociatedFile] minParserVersion:text
SubGraphMetadata name:text description:text inputTensorMetadata:[TensorMetadata]
  outputTensorMetadata:[TensorMetadata]
TensorMetadata name:text description:text - content:Content processUnits:[ProcessUnit] stats:Stats
  associatedFiles:[AssociatedFile]
AssociatedFile name:text description:text type:int8
Content contentPropertiesType:uint8 contentProperties:ContentProperties
ImageProperties colorSpace:int8 defaultSize:ImageSize
ImageSize width:uint32 height:uint32
ProcessUnit optionsType:uint8 options:ProcessUnitOptions
NormalizationOptions mean:[float32] std:[float32]
Stats max:[float32] min:[float32]
"""
"""Name of a table, then its slots: a field's name, type and default (0 if not given), or - for an unused one.
A type is a number's, text, a table, an enum of tables (a union), or in brackets a vector."""


class Field(NamedTuple):
    """A field of a table."""

    slot: int
    name: str
    kind: str
    default: Any


def _rows(text: str) -> Iterator[list[str]]:
    return (line.split() for line in text.replace("\n  ", " ").splitlines())


def _fields(words: list[str]) -> Iterator[Field]:
    for slot, word in enumerate(words):
        if word != "-":
            name, _, rest = word.partition(":")
            kind, _, default = rest.partition("=")
            number = kind[0] != "[" and kind[0].islower() and kind != "text"
            yield Field(slot, name, kind, int(default or 0) if number else None)


NUMBERS: Mapping[str, Mapping[str, int]] = {
    enum: {name: number for number, name in enumerate(names)} for enum, *names in _rows(_ENUMS)
}
"""Enum -> name of a value -> its number."""

FIELDS: Mapping[str, tuple[Field, ...]] = {
    **{name: () for union in ("BuiltinOptions", "ContentProperties") for name in NUMBERS[union]},
    **{table: tuple(_fields(words)) for table, *words in _rows(_TABLES)},
}
"""Table -> its fields."""
