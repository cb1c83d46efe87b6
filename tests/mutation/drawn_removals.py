"""More lines that a test must miss, drawn from all rooms: what each row has is replaced by its third item.

A row without one is the condition of a refusal, which is replaced by ``if False:``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutation import drawn_again_removals, drawn_compiler_removals, drawn_device_removals
from tests.mutation.removal import Removal

ROWS: Mapping[tuple[str, str], list[tuple[str, ...]]] = {
    ("edgekit/bundle/advice.py", "tests/bundle/test_advice.py"): [
        (" and machine(variant) == machine(parent)", "test_times_of_two_machines_are_not_compared", ""),
    ],
    ("edgekit/bundle/bundle.py", "tests/bundle/test_bundle.py"): [
        ("if head and not MAGIC.startswith(start := head[: len(MAGIC)]):", "test_every_flipped_bit_is_found"),
    ],
    ("edgekit/bundle/manifest.py", "tests/bundle/test_hostile_bundle.py"): [
        ("if (size := tensor_bytes(value)) > TENSOR_LIMIT_BYTES:", "test_hostile_values"),
    ],
    ("edgekit/bundle/model_version.py", "tests/bundle/test_model_version.py"): [
        ("if version is not None and not is_version(version):", "test_what_is_no_version_is_refused"),
    ],
    ("edgekit/bundle/source_names.py", "tests/bundle/test_source_names.py"): [
        (
            "if not all(isinstance(i, int) and 0 <= i < count for i in reads):",
            "test_a_table_of_another_form_is_refused",
        ),
    ],
    ("edgekit/batch/rebuild.py", "tests/batch/test_rebuild.py"): [
        ("if unknown:", "test_an_option_that_is_not_known_is_not_dropped"),
    ],
    ("edgekit/devices/connection.py", "tests/devices/test_hostile_devices.py"): [
        ("[:ERROR_LIMIT_CHARS]", "test_an_error_is_short", ""),
    ],
    ("edgekit/devices/inventory.py", "tests/devices/test_hostile_devices.py"): [
        (
            "if DISTRIBUTION.fullmatch(name) and VERSION.fullmatch(version)",
            "test_no_name_of_a_package_is_a_line_for_pip",
            "if True",
        ),
        (
            ("if not isinstance(value, str) or len(value) > WORDS_LIMIT_CHARS or not value.isprintable():"),
            "test_an_inventory_is_of_words_and_numbers",
        ),
    ],
    ("edgekit/devices/measure.py", "tests/devices/test_hostile_devices.py"): [
        (
            'if any(\n            row["variant"] not in variant_names and not row["variant"]'
            ".startswith(later) for row in results\n        ):",
            "test_figures_of_a_device_are_of_the_bundle_that_it_ran",
        ),
    ],
    ("edgekit/devices/vendor_tools.py", "tests/devices/test_hostile_devices.py"): [
        ("if len(out) > OUTPUT_LIMIT_BYTES:", "test_a_tool_that_prints_for_ever_is_ended"),
    ],
    ("edgekit/release/fleet/devices.py", "tests/release/fleet/test_wrong_clocks.py"): [
        ("times[min(ignored(len(times)), len(times) - 1)]", "test_one_device_decides_nothing", "known[0]"),
        (
            "process.last.since if process.last.since >= EARLIEST else process.first_sent",
            "test_boards_without_a_battery_count",
            "process.last.since",
        ),
        (
            "return max([since, *before])",
            "test_a_start_is_not_before_the_last_row_of_the_bundle_before",
            "return since",
        ),
    ],
    ("edgekit/release/fleet/sequential_test.py", "tests/release/fleet/test_wrong_clocks.py"): [
        ("cut = min(cut, (count - 1) // 2)", "test_one_device_decides_nothing", "cut = 0"),
    ],
    ("edgekit/release/fleet/rollout.py", "tests/release/fleet/test_fleet.py"): [
        ("if digest not in reported:", "test_a_bundle_that_nobody_has"),
    ],
    ("edgekit/release/fleet/rows.py", "tests/release/fleet/test_wrong_clocks.py"): [
        ("if not EARLIEST <= row.until <= now + DAY_S:", "test_rows_of_a_wrong_clock_are_counted"),
        ("if seconds > count * MOST:", "test_times_that_add_up_to_too_much_are_no_times"),
    ],
    ("edgekit/release/fleet/rows.py", "tests/release/fleet/test_fleet.py"): [
        ("if score_sum > score_count:", "test_scores_are_at_most_1"),
        (
            "if scale != SCALE or type(offset) is not int or abs(offset) > 1000 or len(values) > 1000:",
            "test_buckets_are_those_of_edgekit",
        ),
        ("if NAME.fullmatch(about[field]) is None:", "test_a_row_of_a_device_whose_name_is_none_is_no_row"),
        (
            'if about["channel"] and NAME.fullmatch(about["channel"]) is None:',
            "test_a_row_of_a_device_whose_name_is_none_is_no_row",
        ),
        ("if type(value) is not int or not 0 <= value < 1 << 53:", "test_buckets_are_those_of_edgekit"),
        ("if since > until:", "test_a_wrong_row_is_passed_over_with_its_reason"),
        (
            "if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):",
            "test_a_wrong_row_is_passed_over_with_its_reason",
        ),
    ],
    ("edgekit/system/formats/strict_json.py", "tests/release/fleet/test_fleet.py"): [
        ("if len(data) > limit_bytes:", "test_a_row_has_at_most_a_megabyte"),
    ],
    ("edgekit/compiler/importers/torch_archives.py", "tests/compiler/importers/test_torch_archives.py"): [
        (
            "if text not in TENSOR_NAMES and not _STORAGE.fullmatch(text):",
            "test_a_program_that_would_run_code",
        ),
        ("if not _NAME.fullmatch(value) or value in _IMPORTED:", "test_a_program_that_would_run_code"),
    ],
    ("edgekit/compiler/model/language/gguf_file.py", "tests/compiler/model/language/test_hostile_gguf.py"): [
        ("if self._file.size - self.position >= size:", "test_a_head_over_the_limit_is_not_read"),
    ],
    (
        "edgekit/compiler/model/language/hugging_face.py",
        "tests/compiler/model/language/test_hugging_face.py",
    ): [
        ("if len(names) > SHARDS_LIMIT:", "test_a_folder_of_very_many_shards_is_refused"),
    ],
    ("edgekit/compiler/model/tree_ensembles.py", "tests/compiler/model/test_tree_ensembles.py"): [
        ("if leaves * outputs > WEIGHTS_LIMIT:", "test_leaves_by_outputs_are_limited"),
    ],
    ("edgekit/report/facts.py", "tests/report/test_facts.py"): [
        (" or math.isnan(snr_db)", "test_the_chart_the_table_and_the_tooltip_have_the_same_snr", ""),
    ],
    ("edgekit/runtime/deadline/deadline.py", "tests/runtime/deadline/test_deadline.py"): [
        (
            (
                "if isinstance(deadline_ms, bool) or not isinstance(deadline_ms, (int, float)) or "
                "not deadline_ms > 0:"
            ),
            "test_a_deadline_is_a_positive_number",
        ),
    ],
    ("edgekit/runtime/gallery.py", "tests/runtime/test_gallery.py"): [
        (
            "if vectors.ndim != 2 or names.shape != vectors.shape[:1] or not vectors.size:",
            "test_files_that_are_no_gallery",
        ),
    ],
    ("edgekit/runtime/generate/template_sandbox.py", "tests/runtime/generate/test_chat_template.py"): [
        ("if isinstance(value, list | tuple | Mapping):", "test_only_texts_are_joined"),
        (
            "if any(isinstance(text, str) and len(text) > SHORT_CHARS for text in chars):",
            "test_a_hostile_template_is_one_error",
        ),
    ],
    ("edgekit/runtime/loading/output_checks.py", "tests/runtime/loading/test_output_checks.py"): [
        ("if len(outputs) != len(self._expected):", "test_outputs_are_those_of_the_model_and_no_more"),
    ],
    ("edgekit/runtime/outbox/mqtt.py", "tests/runtime/outbox/test_mqtt.py"): [
        ("if code >= 0x80:", "test_a_row_that_a_broker_does_not_take_is_not_delivered"),
        ("if code in REFUSED:", "test_a_row_that_a_broker_does_not_take_is_not_delivered"),
    ],
    ("edgekit/runtime/outbox/sinks.py", "tests/runtime/outbox/test_sinks.py"): [
        ("if not (200 <= status < 300 or status == 409):", "test_these_do_not"),
    ],
    ("edgekit/runtime/remote/inference_protocol.py", "tests/runtime/remote/test_inference_protocol.py"): [
        (
            ("if array.size != math.prod(spec.shape) or not kinds.issuperset(type(v) for v in array.flat):"),
            "test_what_is_no_answer_is_refused_in_words",
        ),
        ("if len(tail):", "test_bytes_after_the_last_output_are_refused"),
    ],
    ("edgekit/runtime/scheduling/batching.py", "tests/runtime/scheduling/test_batching.py"): [
        (
            "if float(np.square(noise).sum()) > power * 10 ** (-LEAST_SNR_DB / 10):",
            "test_rows_that_mix_are_refused",
        ),
    ],
    ("edgekit/runtime/session.py", "tests/runtime/test_session.py"): [
        (
            (
                "if (type(feeds) is not dict and not isinstance(feeds, Mapping)) or len(feeds) != "
                "len(self._takes):"
            ),
            "test_feeds_that_do_not_fit_are_the_callers_fault",
        ),
    ],
    ("edgekit/runtime/streaming/latest_frame.py", "tests/runtime/streaming/test_stream.py"): [
        ("if problem is not None:", "test_newest_alone"),
    ],
    ("edgekit/system/cpu.py", "tests/runtime/test_session.py"): [
        (
            "if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:",
            "test_threads_are_a_positive_number",
        ),
    ],
    ("edgekit/system/ownership.py", "tests/runtime/test_store_ownership.py"): [
        ("if facts.st_uid not in (0, us):", "test_what_is_another_users_is_not_believed"),
    ],
    ("edgekit/system/regular_file.py", "tests/system/test_regular_file.py"): [
        ("if self.size == 0:", "test_a_file_has_a_size_within_its_limit"),
        ("if self.size > limit_bytes:", "test_a_file_has_a_size_within_its_limit"),
        ("if len(content) > limit_bytes:", "test_no_more_is_read_than_allowed"),
    ],
    ("edgekit/signing/signature_file.py", "tests/signing/test_trusted_keys.py"): [
        (
            (
                "if not isinstance(signatures, list) or len(signatures) != 1 or not "
                "isinstance(signatures[0], dict):"
            ),
            "test_a_signature_with_parts_replaced_is_one_clear_error",
        ),
        ("if not isinstance(key, dict):", "test_a_signature_with_parts_replaced_is_one_clear_error"),
        (
            'if not isinstance(envelope, dict) or envelope.get("payloadType") != PAYLOAD_TYPE:',
            "test_a_signature_with_parts_replaced_is_one_clear_error",
        ),
    ],
    ("edgekit/signing/trusted_keys.py", "tests/signing/test_trusted_keys.py"): [
        ("if sha256_of(path) != digest:", "test_a_file_changed_in_one_byte_fails"),
        ("if isinstance(paths, (str, os.PathLike)) or not paths:", "test_keys_that_are_none"),
    ],
    ("edgekit/release/updates/delta.py", "tests/release/updates/test_delta.py"): [
        (
            '_expect(zstd.frame_content_size(payload) == size, "a block does not have its declared size")',
            "test_a_frame_that_declares_much_takes_no_memory",
            "pass",
        ),
        (
            '_expect(written <= new_size, "it produces more data than declared")',
            "test_no_more_is_written_than_the_new_file_has",
            "pass",
        ),
        ("0 < size <= BLOCK_BYTES and ", "test_a_block_has_limits", ""),
        ("used <= WINDOW_BYTES and ", "test_a_block_has_limits", ""),
        (" and place + used <= before.size", "test_a_block_has_limits", ""),
        (" and payload_size <= 2 * BLOCK_BYTES", "test_a_block_has_limits", ""),
        (
            (
                '_expect(width in (1, 2, 4) and phase < width and len(old) == size, "a difference is '
                'malformed")'
            ),
            "test_malformed_blocks",
            "pass",
        ),
        ('_expect(form == PATCH, "a block of an unknown form")', "test_malformed_blocks", "pass"),
    ],
    ("edgekit/release/updates/publishing.py", "tests/release/updates/test_model_names.py"): [
        (
            'if index["models"] and model not in index["models"] and not add_model:',
            "test_a_second_model_is_asked_for",
        ),
        ("if sides[0] == sides[1] != ([], []):", "test_what_may_be_another_model_is_asked_about", "if True:"),
    ],
    ("edgekit/release/updates/publishing.py", "tests/release/updates/test_update.py"): [
        ("if number not in releases:", "test_a_release_that_is_not_there_is_not_withdrawn"),
    ],
    ("edgekit/release/updates/releases.py", "tests/release/updates/test_releases.py"): [
        ("if type(number) is not int or not 0 < number < 1 << 31:", "test_a_malformed_release_is_refused"),
        (
            "if type(buckets) is not int or not 0 <= buckets <= BUCKETS:",
            "test_a_malformed_release_is_refused",
        ),
        (
            (
                "if not isinstance(deltas, dict) or not all(is_sha256(k) and type(v) is str for k, v "
                "in deltas.items()):"
            ),
            "test_a_malformed_release_is_refused",
        ),
        ("if not is_sha256(bundle):", "test_a_malformed_release_is_refused"),
        ("if not isinstance(text, str) or len(text) > limit:", "test_a_malformed_release_is_refused"),
        (
            "if not fits or not all(type(n) is int and 0 < n < 1 << 31 for n in numbers):",
            "test_a_malformed_channel_is_refused",
        ),
        ("if not isinstance(models, dict):", "test_a_malformed_channel_is_refused"),
        ("if not isinstance(models, dict):", "test_a_malformed_channel_is_refused"),
    ],
    ("edgekit/release/updates/tuf_metadata.py", "tests/release/updates/test_update.py"): [
        ("max(now, channel.issued)", "test_a_clock_that_is_behind_does_not_hide_expiry", "now"),
    ],
    ("edgekit/release/updates/update.py", "tests/release/updates/test_update.py"): [
        (
            "if ownership.read_own(bundle, HEADER.size)[-32:].hex() != release.bundle:",
            "test_a_bundle_is_the_one_that_its_channel_names",
        ),
        (
            "if release.target.size_bytes > size_limit_bytes:",
            "test_a_bundle_that_is_too_large_is_not_fetched",
        ),
    ],
    ("samples/camera/live/access.py", "tests/samples/test_camera_access.py"): [
        ('.encode("utf-8", "surrogatepass")', "test_a_socket_whose_token_is_no_text_is_closed", ".encode()"),
    ],
}
"""(file, file of tests) -> (lines, test, what stands there instead)."""

DRAWN = tuple(
    Removal(file, row[0], (f"{tests}::{row[1]}",), *(row[2:] or ("if False:",)))
    for (file, tests), rows in (
        *ROWS.items(),
        *drawn_compiler_removals.ROWS.items(),
        *drawn_device_removals.ROWS.items(),
        *drawn_again_removals.ROWS.items(),
    )
    for row in rows
)
