"""Export a bundle to other systems: engine files, Triton, Kubernetes, device platforms."""
