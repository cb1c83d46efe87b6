"""Time and accuracy loss of a variant, node by node."""
