"""A second draw of lines that refuse or bound something, from all rooms but gRPC (seed 48).

The form of the rows is that of ``drawn_removals.py``. Two that were drawn have no row because their tests
need PyTorch: ``not len(samples)`` in fake_quantization.py and ``_untraceable(model, problem)`` in pytorch.py.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[tuple[str, str], list[tuple[str, ...]]] = {
    ("edgekit/bundle/bundle.py", "tests/bundle/test_bundle.py"): [
        ('if digest.hexdigest() != self._entries[entry]["sha256"]:', "test_opening_reads_no_entry"),
    ],
    ("edgekit/bundle/manifest.py", "tests/bundle/test_hostile_bundle.py"): [
        ('_check_unique(names, "cascade.stages")', "test_hostile_values", "pass"),
    ],
    ("edgekit/cli/bundle_verbs.py", "tests/cli/test_report_verb.py"): [
        (
            "opened.verify_entries()\n        answers = None",
            "test_a_damaged_bundle_has_no_page",
            "pass\n        answers = None",
        ),
    ],
    ("edgekit/cli/bundle_verbs.py", "tests/compiler/build/encoder_decoder/test_speech_bundle.py"): [
        (
            'refuse_given({"text", "output", "drawing", "accelerator"}, "does not go with -i -")',
            "test_the_command_line_builds_runs_and_verifies",
            "pass",
        ),
    ],
    (
        "edgekit/compiler/build/encoder_decoder/bundle.py",
        "tests/compiler/build/encoder_decoder/test_text2text_bundle.py",
    ): [
        (
            "refuse_if_all_are_lost(path.name, job.faults, targets, variants)",
            "test_nothing_is_built_if_the_only_target_meets_a_fault",
            "pass",
        ),
    ],
    (
        "edgekit/compiler/build/language/language_bundle.py",
        "tests/compiler/build/language/test_language_bundle.py",
    ): [
        ("if maximum < LEAST_CONTEXT_TOKENS:", "test_a_context_that_is_too_short_is_refused"),
    ],
    ("edgekit/compiler/evaluate/text_files.py", "tests/compiler/evaluate/test_whole_inputs.py"): [
        ("if len(lines) > LINES_LIMIT:", "test_text_files_that_are_no_samples"),
    ],
    ("edgekit/compiler/evaluate/verify.py", "tests/compiler/evaluate/test_verify.py"): [
        (
            "if result.keys() != {spec.name for spec in outputs}:",
            "test_a_variant_with_wrong_answers_is_rejected",
        ),
    ],
    ("edgekit/compiler/importers/keras_archives.py", "tests/compiler/importers/test_keras_archives.py"): [
        ("_check_objects(members, h5py, file)", "test_weights_that_read_other_files", "pass"),
    ],
    ("edgekit/compiler/importers/torch_archives.py", "tests/compiler/importers/test_torch_archives.py"): [
        ("_check_value(path, key, item)", "test_a_program_that_would_run_code", "pass"),
        (
            '_check_code(path, name, members.read(name).decode("utf-8", "replace"))',
            "test_torchscript_that_would_use_files",
            "pass",
        ),
    ],
    (
        "edgekit/compiler/model/encoder_decoder/generation_settings.py",
        "tests/compiler/model/text2text/test_open_text2text.py",
    ): [
        ("if type(token) is not int or not 0 <= token < vocabulary:", "test_what_does_not_fit_is_refused"),
    ],
    ("edgekit/compiler/model/input_shapes.py", "tests/compiler/model/test_onnx_file.py"): [
        (
            "if any(d < 0 for d in shape) or math.prod(shape) > MAX_INPUT_ELEMENTS:",
            "test_shapes_that_do_not_fit",
        ),
        ("_check_given(by_name, name, shape)", "test_shapes_that_do_not_fit", "pass"),
    ],
    ("edgekit/compiler/model/language/gguf_file.py", "tests/compiler/model/language/test_hostile_gguf.py"): [
        (
            "if len(raw) != tensor.size_bytes:",
            "test_a_file_that_shrinks_while_it_is_open_gives_an_error_and_no_signal",
        ),
    ],
    (
        "edgekit/compiler/model/language/gguf_tokenizer.py",
        "tests/compiler/model/language/test_hostile_gguf.py",
    ): [
        ("if not 0 < len(tokens) <= vocabulary:", "test_metadata_that_can_not_be_gives_one_clear_error"),
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
    ("edgekit/compiler/model/shape_inference.py", "tests/compiler/model/test_hostile_model.py"): [
        ("if walk.computed_bytes > walk.computed_limit:", "test_constants_made_of_constants"),
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
    (
        "edgekit/compiler/model/text2text/sentencepiece_file.py",
        "tests/compiler/model/test_folder_fields.py",
    ): [
        ("if not pieces or len(pieces) > PIECES_LIMIT:", "test_a_sentencepiece_file_of_too_many_pieces"),
    ],
    ("edgekit/compiler/model/untrusted.py", "tests/compiler/model/test_untrusted.py"): [
        ("if len(tensor.raw_data) != size:", "test_crafted_files"),
    ],
    ("edgekit/compiler/passes/decompositions/tables.py", "tests/compiler/passes/test_ml_decompositions.py"): [
        (
            ('if x is None or x.dtype not in _KEYS or f"keys_{_KEYS[x.dtype]}" not in node.attributes:'),
            "test_label_encoder_of_strings_is_refused",
        ),
    ],
    ("edgekit/compiler/hub/files.py", "tests/compiler/hub/test_fetch.py"): [
        ("if total > TOTAL_BYTES:", "test_the_size_of_all_files_has_a_limit"),
    ],
    ("edgekit/compiler/sandbox/messages.py", "tests/compiler/sandbox/test_messages.py"): [
        (
            ('return text if len(text) < TEXT_LIMIT_CHARS // 4 else f"{text[: TEXT_LIMIT_CHARS // 4]}..."'),
            "test_the_text_of_an_error_fits_a_message",
            'return text if len(text) < TEXT_LIMIT_CHARS // 4 else f"{text}..."',
        ),
    ],
    ("edgekit/devices/measure.py", "tests/devices/test_device_verbs.py"): [
        ("bundle.verify_entries()", "test_what_is_damaged_between_entries_is_not_sent_either", "pass"),
    ],
    ("edgekit/processing/generation.py", "tests/runtime/generate/test_decoder_chain.py"): [
        ("if not 0 < context <= CONTEXT_LIMIT_TOKENS:", "test_what_is_no_language_model_says_so"),
    ],
    (
        "edgekit/processing/tasks/image_to_image/decode.py",
        "tests/processing/tasks/image_to_image/test_decode.py",
    ): [
        ("if len(self.range) != 2 or not self.range[0] < self.range[1]:", "test_what_can_not_be"),
    ],
    ("edgekit/processing/tasks/segment/decode.py", "tests/processing/tasks/segment/test_decode.py"): [
        (
            (
                'if len(planes) != 1:\n        raise EngineError(f"a mask has one plane, but the o'
                'utput is {list(output.shape)}")'
            ),
            "test_outputs_and_options_that_do_not_fit",
            (
                'if False:\n        raise EngineError(f"a mask has one plane, but the output is {l'
                'ist(output.shape)}")'
            ),
        ),
    ],
    ("edgekit/processing/tasks/transcribe/whisper.py", "tests/processing/tasks/transcribe/test_whisper.py"): [
        (
            "if any(token < options.end and token >= len(labels) for token in new):",
            "test_a_token_without_text_is_refused",
        ),
    ],
    ("edgekit/processing/tokenizer_bounds.py", "tests/processing/test_tokenizer_bounds.py"): [
        (
            'if getattr(tokenizer.model, "max_input_chars_per_word", 0) > WORD_LIMIT_CHARS:',
            "test_a_hostile_tokenizer_is_one_error",
        ),
    ],
    ("edgekit/release/fleet/rows.py", "tests/release/fleet/test_fleet.py"): [
        (
            "if not isinstance(value, str) or len(value) > TEXT_LIMIT_CHARS:",
            "test_a_wrong_row_is_passed_over_with_its_reason",
        ),
    ],
    ("edgekit/release/updates/download.py", "tests/release/updates/test_network.py"): [
        (
            "if reason := why_foreign(os.fstat(file.fileno())):",
            "test_what_others_may_write_to_is_not_resumed",
        ),
        (
            "flush_folder(folder)\n    return whole",
            "test_a_whole_download_and_its_name_are_on_the_disk_before_it_is_installed",
            "pass\n    return whole",
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
    ("edgekit/runtime/device_builds/engine_store.py", "tests/runtime/device_builds/test_build.py"): [
        (
            (
                'private_folder(self.root)\n        with open_regular(self.root / ".lock", follow_'
                "links=False, create=True) as file:"
            ),
            "test_a_good_builder_leaves_a_whole_engine_and_what_it_measured",
            (
                'pass\n        with open_regular(self.root / ".lock", follow_links=False, create=T'
                "rue) as file:"
            ),
        ),
    ],
    ("edgekit/runtime/generate/loaded_decoder.py", "tests/runtime/generate/test_decoder_chain.py"): [
        (
            "if type(self.kept_bytes) is not int or self.kept_bytes < 0:",
            "test_an_option_that_does_not_fit_is_one_error",
        ),
    ],
    ("edgekit/runtime/generate/template_sandbox.py", "tests/runtime/generate/test_chat_template.py"): [
        (
            "elif isinstance(item, int) and item.bit_length() > 64:",
            "test_a_number_has_at_most_64_bits",
            "elif False:",
        ),
        ("if self.left_bytes < 0:", "test_a_hostile_template_is_one_error"),
    ],
    ("edgekit/runtime/metrics/labelled_counts.py", "tests/runtime/metrics/test_metrics.py"): [
        (
            ('return text if len(text) <= REASON_LIMIT_CHARS else text[: REASON_LIMIT_CHARS - 3] + "..."'),
            "test_a_reason_tells_no_number_and_no_path",
            'return text if len(text) <= REASON_LIMIT_CHARS else text + "..."',
        ),
    ],
    ("edgekit/runtime/scheduling/request_queue.py", "tests/runtime/scheduling/test_request_queue.py"): [
        ("if deadline_ms is not None and not 0 < deadline_ms < inf:", "test_an_error_is_its_requests_own"),
    ],
    ("edgekit/runtime/session.py", "tests/compiler/build/language/test_language_bundle.py"): [
        (
            "refuse_generation(self.bundle.card, self.bundle.name)",
            "test_what_runs_on_arrays_refuses_it",
            "pass",
        ),
    ],
    ("edgekit/serve/openai/endpoints.py", "tests/serve/openai/test_openai_endpoints.py"): [
        ("if not isinstance(model, ServedText):", "test_refusals_in_the_api_s_form"),
    ],
    ("edgekit/serve/served_models.py", "tests/serve/test_repository.py"): [
        ("if not keys:", "test_what_can_not_be_loaded_changes_nothing"),
    ],
    ("edgekit/serve/service.py", "tests/serve/test_admin_token.py"): [
        (
            "elif not _is_token(authorization, self.admin_token):",
            "test_an_inference_token_loads_and_unloads_nothing",
            "elif False:",
        ),
    ],
    ("edgekit/system/formats/json_schema.py", "tests/bundle/test_hostile_bundle.py"): [
        ('check_item(item, f"{location}[{i}]")', "test_hostile_values", "pass"),
    ],
    ("edgekit/system/formats/json_schema.py", "tests/system/test_declared_json.py"): [
        ("strict_json.check_text(value, location)", "test_another_form_is_refused", "pass"),
    ],
    ("edgekit/web/report_server.py", "tests/web/test_report_server.py"): [
        ("self._refuse(status, reason)", "test_files_and_one_report", "pass"),
    ],
    ("targets/edgekit_ncnn/ops_shape.py", "tests/targets/ncnn/test_compile.py"): [
        ("if len(bounds) > RUNS_LIMIT:", "test_indices_of_too_many_runs_are_refused"),
    ],
    ("targets/edgekit_openvino/run.py", "tests/targets/test_unfed_inputs.py"): [
        ("_refuse_unfed(compiled, inputs)", "test_an_input_that_nobody_feeds_is_an_engine_error", "pass"),
    ],
    ("targets/edgekit_ort/decoder.py", "tests/targets/language/test_decoders.py"): [
        (
            "check_step([token], 1, runner.length, self.capacity, self._shape.vocabulary)",
            "test_rows_of_several_texts_do_not_depend_on_each_other",
            "pass",
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
        ("if self._signature < 0:", "test_a_file_of_another_model_is_no_gpu_s_either"),
    ],
    ("targets/edgekit_tflite/importer/convert.py", "tests/targets/tflite/importer/test_damaged_files.py"): [
        ("if size > MAX_BYTES:", "test_a_file_beyond_2_gb_is_not_read"),
    ],
    ("targets/edgekit_tflite/importer/readers.py", "tests/targets/tflite/importer/test_damaged_files.py"): [
        (
            "if len(op.inputs) < reader.inputs or min(op.inputs[: reader.inputs], default=0) < 0:",
            "test_what_is_wrong_is_said",
        ),
    ],
    ("targets/edgekit_tflite/records.py", "tests/targets/tflite/test_schema.py"): [
        ("if not 0 < number < len(names):", "test_a_union_of_an_unknown_kind_is_damage"),
    ],
}
