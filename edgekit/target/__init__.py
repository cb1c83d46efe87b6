"""What the author of a target imports: the contract, profiles, quantization rules."""

from __future__ import annotations

from edgekit.target.contract import Artifact, Compiler, Engine, EngineInfo, Runner, TargetInfo

__all__ = ["Artifact", "Compiler", "Engine", "EngineInfo", "Runner", "TargetInfo"]
