"""The quantizer: calibrate once on the canonical float graph, quantize under each target's rules.

    recipe       the data that passes between the rooms: Affine, QuantizedWeights, Plan, Recipe
    numerics     scale and zero point from a range; quantize, dequantize; the error of a range
    observe      what is remembered of each tensor: channel minima and maxima, a sample of positions
    calibrate    one streaming pass over the samples; the split into fit, choose and prove
    observation_cache  what was observed, on the disk
    float_weights  weights that a model stores as integers, as the floats they stand for
    rules        the types of a target's quant_rules.py
    kernels      rules matched with the graph: what computes on integers, with what is fused behind it
    placements   which kernels do: choices worth trying, by how much a kernel multiplies
    rewrites     exact rewrites of the float graph that make more of it computable on integers
    centre       values stored about their own middle, where a zero point must be 0
    place        rules + observations -> Plan: which values are stored as integers, and by which scales
    weights      rounding that makes up for its own error; bias correction; layer by layer
    positions    where to look: the float outputs that rounding aims at, at positions that were drawn
    network      the quantized network on all samples side by side; execute runs a stretch of it
    columns      a node with weights as a matrix product; what meets which column
    rounding     matrices to integers: scales, nearest, GPTQ, pairs that a kernel adds in int16
    history      what a value depends on, so that plans share what was found
    stored_weights  weights alone as integers
    emit         Plan -> the canonical graph with Q/DQ pairs, the only form a target sees
    candidate    all of these in a row, and what came out measured on a target's engine
    sensitivity  where accuracy is lost, and which nodes might stay float for it
    search       which candidate next, when to stop, what is worth shipping
    trial_record what was measured of candidates, on the disk

Q/DQ ONNX is the interchange form (docs/decisions): a target compiles it as it compiles any model.
"""
