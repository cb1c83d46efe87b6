"""``edgekit build`` of a language model: one decoder for each target and precision, judged on a text."""
