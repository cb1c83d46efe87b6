"""What the author of a target imports: the contract, profiles, quantization rules.

The contract is loaded when a name of it is first used: it needs numpy, and the command line, which imports
the table of precisions, sets the number of threads before numpy is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.target.contract import Artifact, Compiler, Engine, EngineInfo, Runner, TargetInfo

__all__ = ["Artifact", "Compiler", "Engine", "EngineInfo", "Runner", "TargetInfo"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgekit.target' has no attribute {name!r}")
    from edgekit.target import contract

    return getattr(contract, name)
