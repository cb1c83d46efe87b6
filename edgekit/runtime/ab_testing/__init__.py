"""Two bundles compared on live requests, with a sequential test."""
