"""The C and C++ library ``libedgekit``: its sources, and the command that compiles them.

Nothing else in EdgeKit imports this folder.
"""
