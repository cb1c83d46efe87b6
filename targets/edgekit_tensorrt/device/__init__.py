"""Device-side parts of run.py: CUDA, engines, the golden vector, the child process that builds."""
