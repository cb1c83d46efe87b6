"""A second draw of lines that refuse or bound something, from all rooms but gRPC (seed 48).

The form of the rows is that of ``drawn_removals.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[tuple[str, str], list[tuple[str, ...]]] = {
    ("edgekit/bundle/bundle.py", "tests/bundle/test_bundle.py"): [
        (
            'if digest.hexdigest() != self._entries[entry]["sha256"]:',
            "test_opening_reads_no_entry",
        ),
    ],
    ("edgekit/cli/bundle_verbs.py", "tests/cli/test_report_verb.py"): [
        (
            "opened.verify_entries()\n        answers = None",
            "test_a_damaged_bundle_has_no_page",
            "pass\n        answers = None",
        ),
    ],
    (
        "edgekit/compiler/build/language/language_bundle.py",
        "tests/compiler/build/language/test_language_bundle.py",
    ): [
        (
            "if maximum < LEAST_CONTEXT_TOKENS:",
            "test_a_context_that_is_too_short_is_refused",
        ),
    ],
    ("edgekit/compiler/importers/keras_archives.py", "tests/compiler/importers/test_keras_archives.py"): [
        (
            "_check_objects(members, h5py, file)",
            "test_weights_that_read_other_files",
            "pass",
        ),
    ],
    ("edgekit/compiler/model/input_shapes.py", "tests/compiler/model/test_onnx_file.py"): [
        (
            "if any(d < 0 for d in shape) or math.prod(shape) > MAX_INPUT_ELEMENTS:",
            "test_shapes_that_do_not_fit",
        ),
    ],
    (
        "edgekit/compiler/model/language/safetensors_file.py",
        "tests/compiler/model/language/test_hugging_face.py",
    ): [
        (
            "if len(offsets) != 2 or not offsets[0] <= offsets[1] <= file_bytes - start:",
            "test_a_wrong_folder_gives_one_clear_error",
        ),
        (
            "if dtype in SIZES and math.prod(shape) * SIZES[dtype] != size_bytes:",
            "test_a_wrong_folder_gives_one_clear_error",
        ),
    ],
    (
        "edgekit/compiler/model/speech/ctranslate2_file.py",
        "tests/compiler/model/speech/test_open_speech.py",
    ): [
        (
            "if size > limit or self.offset + size > len(self.content):",
            "test_a_name_beyond_its_limit_is_not_read",
        ),
    ],
    ("edgekit/compiler/model/untrusted.py", "tests/compiler/model/test_untrusted.py"): [
        (
            "if len(tensor.raw_data) != size:",
            "test_crafted_files",
        ),
    ],
    ("edgekit/compiler/sandbox/hub_files.py", "tests/compiler/sandbox/test_hub.py"): [
        (
            "if self.n > limit or self._restarts > RESTARTS:",
            "test_an_endless_file_is_stopped",
        ),
        (
            "if total > TOTAL_BYTES:",
            "test_the_size_of_all_files_has_a_limit",
        ),
    ],
    ("edgekit/compiler/sandbox/messages.py", "tests/compiler/sandbox/test_messages.py"): [
        (
            ('return text if len(text) < TEXT_LIMIT_CHARS // 4 else f"{text[: TEXT_LIMIT_CHARS // 4]}..."'),
            "test_the_text_of_an_error_fits_a_message",
            'return text if len(text) < TEXT_LIMIT_CHARS // 4 else f"{text}..."',
        ),
    ],
    ("edgekit/release/updates/repository.py", "tests/cli/test_update_verbs.py"): [
        (
            "check_channel(channel)\n        if channel in self.channels():",
            "test_wrong_use",
            "pass\n        if channel in self.channels():",
        ),
    ],
    ("edgekit/runtime/deadline/watchdog.py", "tests/runtime/deadline/test_deadline.py"): [
        (
            "return replies.get(timeout=max(0.0, limit_s))",
            "test_the_only_variant_hangs_and_answers_again_once_it_returned",
            "return replies.get(timeout=None)",
        ),
    ],
    ("edgekit/runtime/session.py", "tests/compiler/build/language/test_language_bundle.py"): [
        (
            "refuse_generation(self.bundle.card, self.bundle.name)",
            "test_what_runs_on_arrays_refuses_it",
            "pass",
        ),
    ],
    ("edgekit/serve/served_models.py", "tests/serve/test_repository.py"): [
        (
            "if not keys:",
            "test_what_can_not_be_loaded_changes_nothing",
        ),
    ],
    ("edgekit/system/formats/json_schema.py", "tests/system/test_declared_json.py"): [
        (
            "strict_json.check_text(value, location)",
            "test_another_form_is_refused",
            "pass",
        ),
    ],
    ("edgekit/web/report_server.py", "tests/web/test_report_server.py"): [
        (
            "self._refuse(status, reason)",
            "test_files_and_one_report",
            "pass",
        ),
    ],
    ("targets/edgekit_ncnn/ops_shape.py", "tests/targets/ncnn/test_compile.py"): [
        (
            "if len(bounds) > RUNS_LIMIT:",
            "test_indices_of_too_many_runs_are_refused",
        ),
    ],
    ("targets/edgekit_tensorrt/device/cuda.py", "tests/targets/tensorrt/test_device.py"): [
        (
            'self._cuda.check("cudaStreamEndCapture", self._stream, byref(graph))',
            "test_without_a_graph_it_goes_on",
            "pass",
        ),
    ],
    ("targets/edgekit_tflite/accelerators.py", "tests/targets/tflite/test_run.py"): [
        (
            "if self._signature < 0:",
            "test_a_file_of_another_model_is_no_gpu_s_either",
        ),
    ],
    ("targets/edgekit_tflite/importer/convert.py", "tests/targets/tflite/importer/test_damaged_files.py"): [
        (
            "if size > MAX_BYTES:",
            "test_a_file_beyond_2_gb_is_not_read",
        ),
    ],
    ("targets/edgekit_tflite/importer/readers.py", "tests/targets/tflite/importer/test_damaged_files.py"): [
        (
            "if len(op.inputs) < reader.inputs or min(op.inputs[: reader.inputs], default=0) < 0:",
            "test_what_is_wrong_is_said",
        ),
    ],
    ("targets/edgekit_tflite/records.py", "tests/targets/tflite/test_schema.py"): [
        (
            "if not 0 < number < len(names):",
            "test_a_union_of_an_unknown_kind_is_damage",
        ),
    ],
}
