"""From a variant in a bundle to a loaded runner: probe, unpack, load, check, warm up."""
