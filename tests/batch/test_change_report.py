"""The Markdown of a rebuild: what a bundle says of itself stays text."""

from __future__ import annotations

from edgekit.batch.change_report import change_markdown
from edgekit.batch.compare_bundles import Change
from edgekit.batch.rebuild import Rebuild
from tests.fixtures.bundles import small_bundle


def test_names_and_reasons_make_no_html_links_or_rows() -> None:
    evil = "x | y\n# <script>alert(1)</script> ![p](http://h/p.png) \x1b[2J\u202e"
    change: Change = {
        "variant": evil, "same": False, "status": (evil, evil), "metric": evil, "score": (1.0, 0.5),
        "size_bytes": (1, 2), "latency": evil, "ratio": None, "worse": [evil], "unproved": evil,
    }  # fmt: skip
    found = Rebuild(small_bundle([]), [change], {evil: ("1", evil)}, (1, 2), [evil], False)
    text = change_markdown(found, evil)
    plain = r"x \| y # \<script>alert(1)\</script> !\[p\](http://h/p.png) \\x1b\[2J\\u202e"
    assert text.splitlines()[0] == f"# {plain} built again"
    assert text.count(plain) == 9
    assert text.count("\n#") == 0
    assert [line.count(" | ") for line in text.splitlines() if line.startswith("| ")] == [3, 3, 3]
