"""The host system: atomic files, ownership checks, the cache folder, the processor, cached timings."""
