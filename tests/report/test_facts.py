"""What the page says: the front, who has no score, the price, what damages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.source_names import CanonicalNode, SourceNames, SourceNode
from edgekit.errors import BundleError
from edgekit.report.charts import variants_chart
from edgekit.report.facts import facts_of
from edgekit.report.page import page_of
from edgekit.system.formats.plain_text import milliseconds
from edgekit.tensor_spec import Json
from tests.fixtures import cascades
from tests.fixtures.bundles import small_bundle
from tests.report.reported import accuracy, reported_bundle, timing, variant


def test_the_front_holds_what_no_other_is_better_than_in_all_three() -> None:
    facts = facts_of(reported_bundle())
    # fp32 is faster than fp16, which is smaller; the rejected one is never on the front.
    assert {point.name: point.front for point in facts.points} == {
        "ort-fp32": True,
        "ort-fp16": True,
        "ort-int8-mixed": True,
        "ort-int8": False,
    }
    slower = variant("slow", "fp32", size_bytes=9_000_000, timing=timing(99.0), accuracy=accuracy(50.0))
    other = small_bundle([*reported_bundle().variants, slower._replace(files={"m": "variants/slow/m"})])
    other.manifest["samples"] = {"origin": "8 files"}
    assert {point.name: point.front for point in facts_of(other).points}["slow"] is False


def test_a_float_variant_beside_scores_stands_where_the_float_model_stands() -> None:
    points = {point.name: point for point in facts_of(reported_bundle()).points}
    assert (points["ort-fp16"].accuracy, points["ort-fp16"].scored) == (1.0, False)
    assert (points["ort-int8-mixed"].accuracy, points["ort-int8-mixed"].scored) == (0.91, True)
    assert "not scored, SNR 60.0 dB" in points["ort-fp16"].summary


def test_without_scores_accuracy_is_the_snr() -> None:
    bundle = small_bundle([variant("a", "fp32", size_bytes=9, timing=timing(1.0), accuracy=accuracy(99.5))])
    bundle.manifest["samples"] = {"origin": "8 files"}
    facts = facts_of(bundle)
    assert (facts.metric, facts.unit, facts.points[0].accuracy) == ("SNR", "dB", 99.5)


def test_the_chart_the_table_and_the_tooltip_have_the_same_snr() -> None:
    """The worst output's is 140.6 dB, that of its worst part 64.5."""
    part = {"metric": "worst part's SNR", "value": 64.5, "unit": "dB", "samples": 8}
    nan: dict[str, Json] = {"y": {"snr_db": None, "max_abs": None, "limit_db": 20.0}}
    rows = (("a", accuracy(140.6)), ("b", accuracy(None)), ("c", nan))
    variants = [
        variant(name, "fp32", size_bytes=9, timing=timing(1.0), accuracy=errors)._replace(
            files={"m": f"variants/{name}/m"}
        )
        for name, errors in rows
    ]
    variants[0].evidence["agreement"] = part  # type: ignore[index]
    bundle = small_bundle(variants)
    bundle.manifest["samples"] = {"origin": "8 files"}
    facts = facts_of(bundle)
    assert {point.name: point.accuracy for point in facts.points} == {"a": 64.5, "b": 200.0}
    assert facts.points[0].summary == "a: 1 ms on A CPU, 2 threads, SNR 64.5 dB, 0.0 kB; yes, on Ort 1"
    assert [row[facts.columns.index("SNR")] for row in facts.rows] == ["64.5 dB", "exact", "not finite"]
    assert facts.not_drawn == (("c", "its outputs are not finite"),)


def test_a_chart_of_one_accuracy_has_room_around_it() -> None:
    """Vega labels the only tick of an empty range 0."""
    for accuracies, domain in (((60.0, 60.0), [50.0, 70.0]), ((60.0, 61.0), None)):
        variants = [
            variant(name, precision, size_bytes=9, timing=timing(1.0), accuracy=accuracy(snr_db))
            for name, precision, snr_db in zip("ab", ("fp32", "fp16"), accuracies, strict=True)
        ]
        bundle = small_bundle(variants)
        bundle.manifest["samples"] = {"origin": "8 files"}
        spec = variants_chart(facts_of(bundle))
        assert spec is not None
        assert spec["layer"][0]["encoding"]["y"]["scale"].get("domain") == domain


def test_accuracy_is_drawn_by_what_a_timed_variant_has() -> None:
    score = {"metric": "mAP", "value": 0.4, "unit": "", "float": 0.5}
    timed = variant("a", "fp32", size_bytes=9, timing=timing(1.0), accuracy=accuracy(101.6))
    away = variant("b", "int8", size_bytes=9, accuracy=accuracy(11.0), task=score)
    bundle = small_bundle([timed, away])
    bundle.manifest["samples"] = {"origin": "8 files"}
    facts = facts_of(bundle)
    assert [(p.name, p.accuracy, p.scored) for p in facts.points] == [("a", 101.6, True)]
    assert (facts.metric, facts.not_drawn) == ("SNR", (("b", "not timed on the machine of the build"),))


def test_the_times_of_a_language_model_are_of_a_token() -> None:
    generation = {"perplexity": 20.0, "agreement": 0.9}
    kept = variant(
        "a", "int8", size_bytes=9, timing=timing(1.0), accuracy=accuracy(30.0), generation=generation
    )
    for variants, of in (([kept], "a token"), (reported_bundle().variants, "a run")):
        bundle = small_bundle(variants)
        bundle.manifest["samples"] = {"origin": "8 files"}
        assert f"median time of {of} at build, ms" in json.dumps(variants_chart(facts_of(bundle)))


def test_a_search_has_its_price_and_its_damage_the_worst_first() -> None:
    (search,) = facts_of(reported_bundle()).searches
    assert search.price == (
        "Plain int8 (all, minmax, nearest) has self-mAP 0.072 at 0.55x the time of the float parent; "
        "all, l4, nearest has self-mAP 0.920 at 0.60x the time of the float parent."
    )
    assert search.damage == (("conv", 3.2, True, "depthwise range"), ("stem", 25.0, False, ""))
    assert search.floats == (("ort-int8-mixed", "conv"),)
    assert [each.lost for each in search.candidates] == ["", "self-mAP 0.072; 0.750 is required"]


def test_a_block_is_called_as_the_author_of_the_model_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    node = CanonicalNode("Conv_3", ("conv",), (SourceNode("Conv_3", "Conv", ""),), ())
    monkeypatch.setattr("edgekit.report.facts.read_source_names", lambda bundle: SourceNames([node]))
    (search,) = facts_of(reported_bundle()).searches
    assert [name for name, *_ in search.damage] == ["Conv_3 (conv)", "stem"]
    assert search.floats == (("ort-int8-mixed", "Conv_3 (conv)"),)


def test_the_causes_are_told_with_their_price() -> None:
    (losses,) = facts_of(reported_bundle()).losses
    assert losses.variant == "ort-int8-mixed"
    assert [str(cause) for cause in losses.causes] == [
        "depthwise range  act: channels reach from 0.16 to 132.7 under one scale, SNR 5.2 dB; kept in float"
    ]
    assert losses.summary == (
        "plain int8 has self-mAP 0.051 at 0.50x the time of fp32; ort-int8-mixed self-mAP 0.920 at 0.60x the "
        "time of fp32: 20% more time than plain int8; 3 more of per-tensor weight."
    )


def test_evidence_from_elsewhere_is_refused_in_words() -> None:
    bundle = small_bundle([variant("a", "int8", size_bytes=9, search={"tried": [{"choice": "x"}]})])
    bundle.manifest["samples"] = {"origin": "8 files"}
    with pytest.raises(BundleError, match=r"^new bundle: invalid evidence: KeyError"):
        facts_of(bundle)


@pytest.mark.needs_ort
def test_a_cascades_later_stages_are_on_the_page(tmp_path: Path) -> None:
    edgekit.build_cascade(cascades.stages(tmp_path)).save(tmp_path / "cascade.edgekit")
    with Bundle.open(tmp_path / "cascade.edgekit") as bundle:
        facts, page = facts_of(bundle), page_of(bundle)
        own = bundle.stage("colour").variants[0].evidence["timing"]["p50_ms"]
    (stage,) = facts.stages
    assert stage.title == "colour: colours"
    assert milliseconds(own) in stage.rows[0]
    assert facts.advice[0].startswith("On ort, first stage, use ort-fp32")
    assert "Later stage colour: colours" in page
    assert "a frame takes the time of the first stage, and for each crop that of the later ones" in page


def test_a_time_of_another_kind_of_processor_is_not_in_the_chart() -> None:
    """A Raspberry Pi's variant that was timed on the machine of the build, an x86-64."""
    bundle = reported_bundle()
    row = next(row for row in bundle.manifest["variants"] if row["name"] == "ort-fp32")
    row["evidence"]["timing"]["elsewhere"] = True
    facts = facts_of(bundle)
    assert "ort-fp32" not in {point.name for point in facts.points}
    assert ("ort-fp32", "timed on another kind of processor") in facts.not_drawn
    own = next(cells for cells in facts.rows if cells[:2] == ("ort", "fp32"))
    assert own[facts.columns.index("p50 at build")] == "-"
