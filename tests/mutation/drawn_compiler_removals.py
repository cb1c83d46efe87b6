"""Lines that refuse or bound something, drawn from the compiler, the cards, the exports and the targets.

The form of the rows is that of ``drawn_removals.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[tuple[str, str], list[tuple[str, ...]]] = {
    # --- the child that opens a model --------------------------------------------------------------------
    ("edgekit/compiler/sandbox/imported_message.py", "tests/compiler/sandbox/test_imported.py"): [
        (
            "if min(model.nodes, model.opset, model.compared.samples) < 0:",
            "test_figures_of_an_imported_model_are_checked",
        ),
    ],
    ("edgekit/system/formats/declared_json.py", "tests/system/test_declared_json.py"): [
        ("if len(kinds) != len(value):", "test_another_form_is_refused"),
        ("if value not in allowed:", "test_another_form_is_refused"),
        ('if not is_number and value not in ("inf", "-inf", "nan"):', "test_another_form_is_refused"),
        ("if not isinstance(value, bool):", "test_another_form_is_refused"),
    ],
    ("edgekit/compiler/sandbox/messages.py", "tests/compiler/sandbox/test_contained.py"): [
        (
            'if not isinstance(about, dict) or not _all_texts([about.get(key) for key in ("kind", "text", '
            '"blame")]):',
            "test_what_no_child_of_ours_says_is_refused",
        ),
        (
            "if any(isinstance(value, int | float) and not 0 <= value < 1 << 53 for value in stage):",
            "test_what_no_child_of_ours_says_is_refused",
        ),
    ],
    ("edgekit/compiler/toolchains/child.py", "tests/compiler/toolchains/test_child.py"): [
        ("if not isinstance(response, dict):", "test_what_is_no_object_is_no_answer"),
        ('if "error" in response:', "test_what_it_raises_is_one_line_and_the_next_request_is_answered"),
    ],
    # --- cards, and what is computed by them -------------------------------------------------------------
    ("edgekit/processing/card.py", "tests/processing/test_card.py"): [
        (
            "if name not in self.inputs or signature.get(output) != (specs[name].shape, specs[name].dtype):",
            "test_a_state_is_an_output_like_its_input",
        ),
    ],
    ("edgekit/processing/image_preparation.py", "tests/processing/test_processing.py"): [
        ('if order not in ("rgb", "bgr"):', "test_what_is_no_frame"),
    ],
    ("edgekit/processing/tasks/pose/movenet.py", "tests/processing/tasks/pose/test_movenet.py"): [
        (
            "if rows.ndim < 2 or rows.shape[-1] != 3 or rows.size != 3 * rows.shape[-2]:",
            "test_movenet_refuses_another_form",
        ),
    ],
    ("edgekit/processing/tokenizer_bounds.py", "tests/processing/test_tokenizer_bounds.py"): [
        ("if sum(map(len, lists)) > STEPS_LIMIT:", "test_a_hostile_tokenizer_is_one_error"),
    ],
    # --- samples and labels ------------------------------------------------------------------------------
    ("edgekit/compiler/evaluate/labels.py", "tests/compiler/evaluate/test_labels.py"): [
        ("if missing:", "test_malformed_classes"),
    ],
    ("edgekit/compiler/evaluate/prepared_files.py", "tests/compiler/evaluate/test_prepared_files.py"): [
        ("if len(lines) > 1:", "test_a_sample_is_one_text"),
    ],
    ("edgekit/compiler/evaluate/samples.py", "tests/compiler/evaluate/test_samples.py"): [
        ("if not path.is_file():", "test_what_is_no_sample_file"),
    ],
    ("edgekit/compiler/evaluate/tiff_directory.py", "tests/compiler/evaluate/test_tiff_directory.py"): [
        ("if tile[0] * tile[1] > pixels_limit:", "test_a_directory_that_is_no_honest_one"),
        ("if total > len(content):", "test_a_directory_that_is_no_honest_one"),
    ],
    # --- what targets declare and decoders check ---------------------------------------------------------
    ("edgekit/target/decoder.py", "tests/target/test_decoder.py"): [
        ("if not 1 <= capacity <= shape.context:", "test_a_capacity_is_within_the_context"),
        ("if tokens > capacity:", "test_a_saved_cache_fits_into_the_capacity"),
    ],
    ("edgekit/target/deferral.py", "tests/target/test_deferral.py"): [
        (
            "if decode not in DECODES or scores not in {spec.name for spec in outputs}:",
            "test_options_that_fit_no_deferral",
        ),
        ('if target == "deferral":', "test_options_that_fit_no_deferral"),
    ],
    ("edgekit/target/profile.py", "tests/target/test_profile.py"): [
        ('if not fact.get("source"):', "test_malformed_profiles_are_refused"),
        ('if fact.get("unit", "") != unit:', "test_malformed_profiles_are_refused"),
    ],
    # --- lowering ----------------------------------------------------------------------------------------
    ("edgekit/compiler/lowering/byte_input.py", "tests/compiler/lowering/test_byte_input.py"): [
        (
            "if rounds and opset_in(model.opset_imports.items()) < ROUND_SINCE:",
            "test_models_that_can_take_none",
        ),
    ],
    ("edgekit/compiler/lowering/io_layouts.py", "tests/compiler/lowering/test_io_layouts.py"): [
        ("if name not in by_name:", "test_what_cannot_be_obeyed"),
        (
            'if any(text.partition("@")[0] == INTEGERS for text in layouts.values()) and not on_integers:',
            "test_integers_without_an_int8_variant",
        ),
    ],
    ("edgekit/compiler/model/sliding_windows.py", "tests/compiler/model/test_sliding_windows.py"): [
        ("if auto_pad not in RULES:", "test_refusals"),
    ],
    # --- documents and exports ---------------------------------------------------------------------------
    ("edgekit/release/provenance.py", "tests/release/provenance/test_attestation.py"): [
        (
            "if _about(content, document) != bundle_sha256:",
            "test_a_statement_about_another_bundle",
        ),
        (
            "if hashlib.sha256(content).hexdigest() != signed.sha256:",
            "test_a_bill_is_put_in_place_while_it_is_checked",
        ),
    ],
    ("edgekit/release/provenance.py", "tests/release/provenance/test_slsa.py"): [
        (
            "if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= "
            'set("0123456789abcdef"):',
            "test_evidence_that_no_build_writes",
        ),
    ],
    ("edgekit/release/export/export.py", "tests/release/export/test_export.py"): [
        ("if make is None:", "test_a_target_without_an_app_export"),
    ],
    ("edgekit/release/export/export_triton.py", "tests/release/export/test_export_triton.py"): [
        ("if name not in variants:", "test_variants_that_triton_does_not_serve"),
        ("if _form(variants[name]) is None:", "test_variants_that_triton_does_not_serve"),
    ],
    ("edgekit/release/export/platform_files.py", "tests/release/export/test_platform_files.py"): [
        (
            r"""if re.search(r"[\s'\"%$\\]", path.name):""",
            "test_a_file_whose_name_a_unit_would_read_otherwise",
        ),
    ],
    # --- figures of bundles ------------------------------------------------------------------------------
    ("edgekit/compiler/bench/compare.py", "tests/compiler/bench/test_compare.py"): [
        ("if not 0 < seconds < math.inf:", "test_a_comparison_has_an_end"),
        ("if not first.bundle.golden:", "test_without_golden_vectors_there_is_nothing_to_compare_on"),
    ],
    ("edgekit/compiler/bench/limits.py", "tests/compiler/bench/test_limits.py"): [
        ("if row is None:", "test_a_baseline_that_does_not_tell"),
    ],
    ("edgekit/compiler/bench/history.py", "tests/compiler/bench/test_history.py"): [
        ("if not isinstance(value, Mapping):", "test_a_bad_line_is_named"),
    ],
    ("edgekit/compiler/explain/diff.py", "tests/compiler/explain/test_diff.py"): [
        ("if not both:", "test_variants_that_only_one_has"),
    ],
    ("edgekit/compiler/explain/explain.py", "tests/compiler/explain/test_explain.py"): [
        ("if not bundle.golden:", "test_without_golden_vectors_there_is_nothing_to_run"),
        ("if rejected is not None:", "test_a_rejected_variant_says_why"),
    ],
    ("edgekit/compiler/quantize/weights/segments.py", "tests/compiler/quantize/weights/test_segments.py"): [
        (
            "del run  # before the next one is made",
            "test_outputs_of_one_sample_are_freed_before_the_next_is_run",
            "pass",
        ),
    ],
    # --- targets -----------------------------------------------------------------------------------------
    ("edgekit/compiler/passes/decompositions/selection.py", "tests/targets/coreml/test_compile.py"): [
        (
            'reduction not in ("add", "mul", "max", "min")',
            "test_a_reduction_that_onnx_does_not_have",
            'reduction == "none"',
        ),
    ],
    ("targets/edgekit_coreml/builder.py", "tests/targets/coreml/test_compile.py"): [
        (
            "if declared is not None and declared != handle.shape:",
            "test_an_output_of_another_shape_than_is_declared",
        ),
    ],
    ("targets/edgekit_coreml/ops_activation.py", "tests/targets/coreml/test_compile.py"): [
        ("if approximate not in modes:", "test_a_gelu_that_core_ml_does_not_have_is_expanded"),
    ],
    ("targets/edgekit_coreml/interpreter/execute.py", "tests/targets/coreml/test_layer_kernels.py"): [
        (
            "if array.dtype.name != declared.dtype or array.shape != declared.shape:",
            "test_an_input_that_is_not_as_declared",
        ),
    ],
    ("targets/edgekit_coreml/ops_index.py", "tests/targets/coreml/test_compile.py"): [
        ("if reduction not in MODES:", "test_a_reduction_that_onnx_does_not_have"),
    ],
    ("targets/edgekit_coreml/run.py", "tests/targets/coreml/test_run.py"): [
        ("if entry is None:", "test_another_model_than_described"),
    ],
    ("targets/edgekit_openvino/compile_decoder.py", "tests/targets/language/test_decoders.py"): [
        ("if precision not in PRECISIONS:", "test_an_unknown_precision"),
    ],
    ("targets/edgekit_openvino/run.py", "tests/targets/openvino/test_run.py"): [
        ("if absent:", "test_outputs_of_another_model_are_an_engine_error"),
    ],
    ("targets/edgekit_ort/compile_decoder.py", "tests/targets/language/test_decoders.py"): [
        ("if precision not in PRECISIONS:", "test_an_unknown_precision"),
    ],
    ("targets/edgekit_ort/decoder.py", "tests/targets/language/test_decoders.py"): [
        (
            "if 0 < window < slots and (int(major), int(minor)) < SLIDES_SINCE:",
            "test_a_sliding_window_needs_an_engine_that_computes_it",
        ),
    ],
    ("targets/edgekit_qnn/compile.py", "tests/targets/qnn/test_compile.py"): [
        ("if precision not in PRECISIONS:", "test_an_unknown_precision"),
        ("if errors(findings):", "test_a_node_that_the_emulator_computes_wrongly_is_no_file"),
    ],
    ("targets/edgekit_rknn/compile.py", "tests/targets/rknn/test_compile.py"): [
        (
            "if findings := check_model(model, profile):",
            "test_what_opset_19_lacks_and_other_types_are_named",
        ),
    ],
    ("targets/edgekit_rknn/npu_child.py", "tests/targets/rknn/test_compile.py"): [
        ("if outputs is None:", "test_a_simulator_without_outputs_is_an_error"),
    ],
    ("targets/edgekit_rknn/run.py", "tests/targets/rknn/test_compile.py"): [
        ("if returned is None or len(returned) != len(outputs):", "test_outputs_are_those_of_the_model"),
        ("if array.size != int(np.prod(spec.shape)):", "test_outputs_are_those_of_the_model"),
    ],
    ("targets/edgekit_tensorrt/device/build_engine.py", "tests/targets/tensorrt/test_run.py"): [
        (
            "if problem.errno not in (errno.ENOSPC, errno.EDQUOT):",
            "test_a_full_disk_is_not_the_engines_fault",
        ),
    ],
    ("targets/edgekit_tensorrt/device/engine.py", "tests/targets/tensorrt/test_run.py"): [
        ("if engine is None:", "test_an_engine_that_twice_stops_working_is_switched_off"),
    ],
    ("targets/edgekit_tensorrt/run.py", "tests/targets/tensorrt/test_run.py"): [
        ("        if wrong:", "test_a_tensorrt_that_misbehaves_is_switched_off", "        if False:"),
    ],
    ("targets/edgekit_tflite/integer_rules.py", "tests/targets/tflite/test_integer_plan.py"): [
        (
            "if coarsest >= COARSEST:",
            "test_add_of_steps_that_the_kernel_overflows_with_stays_float",
        ),
    ],
    ("targets/edgekit_tflite/importer/file.py", "tests/targets/tflite/importer/test_damaged_files.py"): [
        (
            "if any(graph.tensors[o].data is not None for o in op.outputs):",
            "test_what_is_wrong_is_said",
        ),
    ],
    ("targets/edgekit_tflm/run.py", "tests/targets/tflm/test_run.py"): [
        (
            "if of_file.keys() != {spec.name for spec in specs}:",
            "test_a_file_of_another_model_is_refused",
        ),
        (
            "if array.min() < limits.min or array.max() > limits.max:",
            "test_integers_that_the_file_cannot_hold",
        ),
        (
            "if arena >= LARGEST_ARENA_BYTES or not any(words in messages for words in TOO_SMALL):",
            "test_an_arena_that_never_does_ends_at_the_largest",
            "if not any(words in said for words in TOO_SMALL):",
        ),
    ],
}
"""(file, file of tests) -> (lines, test, what stands there instead)."""
