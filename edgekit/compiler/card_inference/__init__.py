"""Drafting of cards for ``edgekit model card``, from a model's metadata, graph and output shapes."""
