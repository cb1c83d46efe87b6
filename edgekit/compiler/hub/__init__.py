"""Models and bundles on the Hugging Face Hub, which are fetched before a model's process starts.

address   ``hf://OWNER/NAME``
client    the list of files, bounded transfers, and errors in one sentence
files     the files of a model or a bundle, in EdgeKit's cache

Transfers are not the library's own. From a hostile server, ``hf_hub_download`` of 2.4 writes files without
end, waits for as long as ``Retry-After`` says, and makes a file's name from an ETag.
"""
