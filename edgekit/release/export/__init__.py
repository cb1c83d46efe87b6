"""Export a bundle to other systems: engine files, Triton, the Hugging Face Hub."""
