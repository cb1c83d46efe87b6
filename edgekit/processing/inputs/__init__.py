"""Input tables of a card: one module for each kind, registered in ``READERS``."""
