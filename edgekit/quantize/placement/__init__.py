"""Which values are quantized under a target's rules, by which scales, and the Q/DQ graph of that."""
