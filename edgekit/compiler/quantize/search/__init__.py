"""The int8 search: candidates, their measurements, and the strategy that decides which one comes next."""
