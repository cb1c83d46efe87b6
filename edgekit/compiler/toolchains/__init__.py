"""Vendors' compilers that need a Python environment of their own: declared by targets, installed on request.

declaration   declaration of a target's toolchain
environment   locations of the environments, and which are installed
install       ``edgekit toolchain install`` and ``remove``
child         a process in such an environment, which serves requests
answering     the process's own end, run by the environment's Python
"""
