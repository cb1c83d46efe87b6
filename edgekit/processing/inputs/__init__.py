"""What a card says of each input: one module a kind, found in ``READERS``."""
