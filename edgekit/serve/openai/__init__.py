"""OpenAI's endpoints: models, chats, completions and embeddings, by the published schema of the API.

Source: github.com/openai/openai-openapi, openapi.yaml. Each option of a request is honored or refused.
"""

from __future__ import annotations

from edgekit.serve.openai.endpoints import OpenAiPath

__all__ = ["OpenAiPath"]
