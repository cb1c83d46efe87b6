"""Drafting of cards for ``edgekit card``, from a model's metadata, graph and output shapes."""
