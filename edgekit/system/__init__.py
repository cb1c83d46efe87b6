"""The machine: files written whole or not at all, the cache folder, the processor, remembered timings."""
