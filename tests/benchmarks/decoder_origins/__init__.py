"""Models of other projects, with those projects' own pre- and post-processing as the reference."""
