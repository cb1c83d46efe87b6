"""What run.py needs besides itself on the device: CUDA, engines, the golden vector, the child that builds."""
