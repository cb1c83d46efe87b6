"""Models that newcomers bring, by framework: how each is made, with its own answers."""
