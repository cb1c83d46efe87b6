"""Parts of a store of bundles: state.py decides, files.py reads and writes, health.py and
candidate_check.py judge a candidate. Apps use ``edgekit.runtime.Store`` (bundle_store.py)."""
