"""Compilers of vendors that need a Python environment of their own: declared by targets, made on request.

declaration   what a target says of its toolchain
environment   where the environments are, and which of them are there
install       ``edgekit toolchain install`` and ``remove``
child         a process in such an environment, which answers requests
answering     the other end of it, run by the environment's Python
"""
