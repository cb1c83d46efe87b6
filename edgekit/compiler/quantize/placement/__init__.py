"""Which values are quantized under a target's rules, with which scales, and the resulting Q/DQ graph."""
