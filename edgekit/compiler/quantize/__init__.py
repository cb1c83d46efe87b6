"""The quantizer: calibrate once on the canonical float graph, quantize under each target's rules.

    recipe       data types: Affine (scale and zero point), QuantizedWeights, Recipe, QuantizationPlan
    numerics     scale and zero point from a range; quantize and dequantize; min-max and MSE ranges
    equalization cross-layer equalization: channels of one value get similar ranges, once for all targets
    causes       why a value loses accuracy in plain int8 or in float16, and what a plan does about it

    observe/     calibration, once for all targets
        calibrate            split into calibration, validation and test set; one pass over the calibration
        set observers            channel minima and maxima and a sample of values of each tensor
        observation_cache    observations on disk
    placement/   which values are quantized, for one target
        float_weights        weights that a model stores as integers, back to float
        kernels              the target's rules matched with the graph: int8 kernels with their fused ops
        placement_presets    which of these kernels run in int8, by reduction size and op type
        rewrites             exact rewrites that let more nodes run in int8: linear_gates, split_silu
        zero_centring        asymmetric values for targets that require zero point 0
        qdq_placement        rules + observations -> QuantizationPlan: scales of all activations
        qdq_graph            plan -> the canonical graph with Q/DQ pairs, which target compilers read
    weights/     weight quantization, layer by layer
        optimize_weights     the loop over the layers, and bias correction
        rounding             scales, round-to-nearest, GPTQ, limits of int16 accumulators
        weight_matrix        a layer's weights as a matrix, and the inputs of each column
        sampled_positions    float outputs at sampled positions: what rounding aims at
        second_moments       Hessians and means of the quantized inputs
        quantized_network, segments   run the quantized network up to the next layer
        value_digests        cache keys, so that plans share quantized weights
        weight_only          int8 weights with float activations
    search/      candidates for one target
        strategy             which candidate to measure next, when to stop, which ones to ship
        candidates           compile and measure a candidate
        measurement          a candidate's configuration and measurement
        measurement_cache    measurements on disk
        sensitivity          which blocks lose the most accuracy, and float regions that avoid it

Q/DQ ONNX is the interchange format (docs/decisions): a target compiles it like any other model.
"""
