"""Decoder-only language models as files: GGUF and Hugging Face folders, read without a framework.

``open_gguf_model`` gives a ``LanguageModel``: its configuration, its weights by name, its tokenizer.
"""

from edgekit.generate.host.readers.language.language_model import DecoderConfig as DecoderConfig
from edgekit.generate.host.readers.language.language_model import LanguageModel as LanguageModel
from edgekit.generate.host.readers.language.language_model import PackedWeight as PackedWeight
