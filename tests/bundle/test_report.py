from __future__ import annotations

import pytest

from edgekit.bundle import Variant
from edgekit.bundle.report import lowest_snr, render_bundle
from edgekit.errors import BundleError
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import small_bundle

TIMING = {"p50_ms": 7.2, "cpu": "A CPU", "threads": 2}
FILES = {"model.bin": "variants/v/model.bin"}


def accuracy(snr_db: float | None, max_abs: float | None = 0.1, limit_db: float = 100.0) -> dict[str, Json]:
    return {"snr_db": snr_db, "max_abs": max_abs, "limit_db": limit_db}


def of(status: str, **evidence: Json) -> Variant:
    variant = Variant("v", "ort", "ort", "fp32", FILES, {}, status, evidence)
    return variant._replace(files={}) if variant.rejected else variant


def report(variant: Variant) -> list[str]:
    bundle = small_bundle([variant])
    bundle.manifest["samples"] = {"origin": "8 files"}
    return bundle.report.splitlines()


def test_a_verified_variant() -> None:
    evidence = {"y": accuracy(120.0), "z": accuracy(101.2)}
    assert report(of("verified on Ort 1", size_bytes=900, timing=TIMING, accuracy=evidence)) == [
        "  target  variant  size    SNR       p50 at build  verified",
        "  ort     fp32     0.9 kB  101.2 dB  7.2 ms        yes, on Ort 1",
        "",
        "  compared with the source model on 8 files; timed on A CPU, 2 threads",
    ]


def test_the_report_says_when_times_were_measured() -> None:
    one, other = ({**TIMING, "measured": f"2026-11-{day} 10:15"} for day in (20, 22))
    variants = [
        of("verified on Ort 1", size_bytes=900, timing=timing)._replace(name=name)
        for name, timing in (("v", other), ("w", one))
    ]
    for given, when in (
        (variants[:1], "2026-11-22 10:15"),
        (variants, "2026-11-20 10:15 to 2026-11-22 10:15"),
    ):
        bundle = small_bundle(given)
        bundle.manifest["samples"] = {"origin": "8 files"}
        assert bundle.report.endswith(f"; timed on A CPU, 2 threads, {when} UTC")


def test_a_time_of_the_build_machine_is_not_that_of_another_device() -> None:
    lines = report(of("verified on Ort 1", size_bytes=900, timing={**TIMING, "elsewhere": True}))
    assert lines[1] == "  ort     fp32     0.9 kB  -    -             yes, on Ort 1"
    assert (
        "  note      v  7.2 ms on the machine of the build, A CPU, whose processor is of another kind: "
        "edgekit bench --device measures it on the device"
    ) in lines


def test_a_rejected_variant_is_below_the_table() -> None:
    assert report(of("rejected: 2.00x the time of w", size_bytes=900)) == [
        "  target  variant  size  SNR  p50 at build  verified",
        "",
        "  rejected  v  2.00x the time of w",
        "",
        "  compared with the source model on 8 files",
    ]


def test_notes() -> None:
    lines = report(
        of(
            "verified on Ort 1",
            size_bytes=900,
            runner={"outside_delegate": {"CONV_2D": 2, "PAD": 1}},
            compile={"transposes": [{"size_bytes": 1000, "why": "first"}, {"size_bytes": 2000, "why": "x"}]},
            accuracy={"y": accuracy(80.0, limit_db=60.0)},
        )
    )
    assert lines[3:5] == [
        "  note      v  not on the engine's fast path: 2 CONV_2D, 1 PAD",
        "  note      v  transposes left: 2, 3.0 kB: first (and 1 more)",
    ]
    assert lines[5].startswith("  note      v  output y: SNR 80.0 dB")


def test_lowest_snr() -> None:
    assert lowest_snr(of("verified")) == "-"
    assert lowest_snr(of("verified", accuracy={"y": accuracy(None)})) == "exact"
    assert lowest_snr(of("verified", accuracy={"y": accuracy(None, max_abs=None)})) == "not finite"


def test_perplexity_is_compared_on_the_same_text() -> None:
    """An engine of fixed shapes reads fewer windows, whose text is another."""

    def writes(name: str, perplexity: float | None, whole: float, tokens: int) -> Variant:
        found = {"perplexity": perplexity, "float_perplexity": whole, "tokens": tokens, "agreement": 0.9}
        made = of("verified on Ort 1", size_bytes=900, timing=TIMING, generation=found)
        return made._replace(name=name, precision="int8", files={"model.bin": f"variants/{name}/model.bin"})

    bundle = small_bundle([writes("all", 28.18, 28.01, 1500), writes("few", 30.01, 29.83, 510)])
    bundle.manifest["samples"] = {"origin": "1500 tokens"}
    lines = bundle.report.splitlines()
    assert lines[:3] == [
        "  target  variant  perplexity  over float's  top-1  size    SNR  a token at build  verified",
        "  ort     int8     28.18       +0.6 %        0.900  0.9 kB  -    7.2 ms            yes, on Ort 1",
        "  ort     int8     30.01       +0.6 %        0.900  0.9 kB  -    7.2 ms            yes, on Ort 1",
    ]
    note = "perplexity on the first 510 of 1500 tokens; the float model's is 29.83 there"
    assert [line for line in lines if "perplexity on" in line] == [f"  note      few  {note}"]
    (lost,) = {line for line in report(writes("n", None, 28.01, 9)) if "not finite" in line}
    assert lost.split()[2:5] == ["not", "finite", "-"]


def test_the_snr_is_that_of_the_worst_part_too() -> None:
    part = {"metric": "worst part's SNR", "value": 64.5, "unit": "dB", "samples": 8}
    whole = of("verified", accuracy={"y": accuracy(140.6)})
    split = whole._replace(evidence={**whole.evidence, "agreement": part})
    assert (lowest_snr(whole), lowest_snr(split)) == ("140.6 dB", "64.5 dB")


@pytest.mark.parametrize("evidence", [{}, {"size_bytes": "many"}, {"size_bytes": 1, "accuracy": {"y": {}}}])
def test_evidence_from_elsewhere_is_refused_in_words(evidence: dict[str, Json]) -> None:
    with pytest.raises(BundleError, match=r"^new bundle: invalid evidence: "):
        report(of("verified", **evidence))


def lost(choice: str, why: str) -> dict[str, Json]:
    return {"choice": choice, "lost": why}


def test_int8_has_its_agreement_what_lost_and_why_blocks_stay_float() -> None:
    score = {"metric": "self-mAP", "value": 0.8964, "unit": "", "samples": 21}
    task = {"metric": "mAP", "value": 0.331, "unit": "", "float": 0.3383}
    tried = [lost("all, l4", ""), *(lost(f"c{i}", "1.20x the time of fp32") for i in range(6))]
    variant = of(
        "verified on Ort 1",
        size_bytes=900,
        timing=TIMING,
        accuracy={"y": accuracy(12.3)},
        agreement=score,
        task=task,
        quantization={"because": ["3 blocks stay float (all): conv alone leaves 10.8 dB"]},
        search={"tried": tried},
    )
    assert report(variant._replace(precision="int8")) == [
        "  target  variant  mAP    self-mAP  size    SNR      p50 at build  verified",
        "  ort     int8     0.331  0.896     0.9 kB  12.3 dB  7.2 ms        yes, on Ort 1",
        "",
        "  searched  ort  7 int8 candidates measured, 1 chosen",
        "  because   v  3 blocks stay float (all): conv alone leaves 10.8 dB",
        "",
        "  compared with the source model on 8 files; int8 on 21 of them held out for testing; "
        "self-mAP of 1: predictions as the float model's; mAP of the float model 0.338; "
        "timed on A CPU, 2 threads",
    ]


def test_candidates_are_listed_on_request() -> None:
    tried = [lost("all, l4", ""), lost("64 columns, l4", "1.20x the time of fp32")]
    variant = of("verified on Ort 1", size_bytes=900, search={"tried": tried, "left_out": 3})
    bundle = small_bundle([variant])
    bundle.manifest["samples"] = {"origin": "8 files"}
    searched = (
        "  searched  ort  2 of 5 int8 candidates measured within the time limit, 1 chosen; "
        "build again for the rest"
    )
    assert [line for line in bundle.report.splitlines() if "searched" in line] == [searched]
    assert "columns" not in bundle.report
    text = render_bundle("b", bundle.manifest, bundle.variants, verbose=True)
    assert text.splitlines()[3:7] == [
        searched,
        "  candidate ort  all, l4: chosen",
        "  candidate ort  64 columns, l4: 1.20x the time of fp32",
        "            compared on the validation samples; the table is of the test samples",
    ]


def test_no_candidate_was_good_enough() -> None:
    variant = of("verified on Ort 1", size_bytes=900, search={"tried": [lost("all, l4", "too slow")]})
    assert "  searched  ort  1 int8 candidate measured, none good enough" in report(variant)


def test_a_bug_is_told_as_one() -> None:
    fault = {"error": "TypeError: x", "traceback": "faults/f.txt"}
    why = "a bug in EdgeKit or in the engine: TypeError: x"
    assert f"  bug       v  {why}; traceback: faults/f.txt in EdgeKit's cache folder" in report(
        of(f"rejected: {why}", size_bytes=0, fault=fault)
    )
    assert f"  bug       v  {why}" in report(
        of(f"rejected: {why}", size_bytes=0, fault={**fault, "traceback": ""})
    )


def test_a_reason_that_several_share_is_told_once() -> None:
    quantization = {"because": ["no depthwise"]}
    one = of("verified on Ort 1", size_bytes=900, quantization=quantization)
    bundle = small_bundle([one, one._replace(name="w")])
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert "  because   v, w  no depthwise" in bundle.report.splitlines()


def test_a_notebook_shows_the_table_and_the_rest_with_nothing_to_execute() -> None:
    lost = of("rejected: <script>", size_bytes=900)._replace(name="w")
    bundle = small_bundle([of("verified on <Ort>", size_bytes=900), lost])
    bundle.manifest["samples"] = {"origin": "8 files"}
    page = bundle._repr_html_()
    assert page.startswith('<p style="margin:0 0 2px">On ort, use v (0.9 kB, not timed, as the source).</p>')
    assert '</p><table><tr><th style="text-align:left;padding:1px 12px 1px 0">target</th>' in page
    assert '<td style="text-align:left;padding:1px 12px 1px 0">yes, on &lt;Ort&gt;</td>' in page
    assert "rejected  w  &lt;script&gt;" in page
    assert "<script>" not in page
    assert "<Ort>" not in page


def test_an_agreement_that_is_the_snr_has_no_column_of_its_own() -> None:
    score = {"metric": "SNR", "value": 24.0, "unit": "dB", "samples": 4}
    header, *_ = report(of("verified on Ort 1", size_bytes=900, agreement=score))
    assert header.split() == ["target", "variant", "size", "SNR", "p50", "at", "build", "verified"]


def test_samples_that_hold_one_value_prove_little() -> None:
    bundle = small_bundle([of("verified on Ort 1", size_bytes=900)])
    bundle.manifest["samples"] = {"origin": "1 files", "one_value": True}
    assert bundle.report.endswith(
        "compared with the source model on 1 files, which are constant and prove little: use typical inputs"
    )


def test_outputs_of_the_source_model_that_are_nan() -> None:
    bundle = small_bundle([of("verified on Ort 1", size_bytes=900)])
    bundle.manifest["samples"] = {"origin": "8 files", "nan": {"y": 0.125}}
    assert (
        "  note      12.5 % of the source model's output y is NaN on these samples, where the "
        "comparison proves nothing: check the model's weights and the samples\n"
    ) in bundle.report


def test_why_int8_was_not_tried() -> None:
    bundle = small_bundle([of("verified on Ort 1", size_bytes=900)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    bundle.manifest["options"] = {"no_int8": "give --samples"}
    assert bundle.report.endswith("; int8 was skipped: give samples")
