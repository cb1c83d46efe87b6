"""OpenAI's endpoints: models, chats, completions, embeddings and transcriptions, by the API's schema.

Source: github.com/openai/openai-openapi, openapi.yaml. Each option of a request is honored or refused.
"""

from __future__ import annotations

from edgekit.serve.openai.endpoints import OpenAiPath

__all__ = ["OpenAiPath"]
