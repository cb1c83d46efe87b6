"""Host side of models that write tokens: readers, graphs, weights, builds and their judges."""
