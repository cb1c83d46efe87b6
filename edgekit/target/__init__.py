"""The public interface for authors of targets: the contract, profiles, quantization rules.

The contract is imported lazily, because it needs numpy. The command line imports the table of precisions and
must set the number of threads before numpy is imported.
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
