"""``edgekit card``: a drafted card, from what a model's metadata, graph and output shapes say."""
