"""Parts of a store of bundles: state.py decides, state_file.py and files.py read and write, health.py and
candidate_check.py judge a candidate. Apps use ``edgekit.runtime.Store`` (bundle_store.py)."""
