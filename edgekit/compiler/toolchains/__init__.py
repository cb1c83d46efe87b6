"""Vendors' compilers that need a Python environment of their own, which the user makes.

environment   the environment's Python, named by a variable such as ``EDGEKIT_<TARGET>_PYTHON``
child         a process in such an environment, which serves requests
answering     the process's own end, run by the environment's Python
"""
