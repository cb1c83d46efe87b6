"""The command line: each verb parses, calls one public function and prints.

A verb is defined in a module ``*_verb``, ``*_verbs`` or, of a group, ``*_group``, which this package imports.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from edgekit.cli.command_group import main

__all__ = ["main"]

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    if _module.endswith(("_verb", "_verbs", "_group")):
        import_module(f"{__name__}.{_module}")
