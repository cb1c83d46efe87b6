"""Tests that a plain ``pytest`` leaves out, each with what still tests the same in every run.

They are not lost: ``.ci/run`` runs them after the others (``pytest -m slow``), and so does a path or ``-k``.
Some tests have the marker ``slow`` in their own file.
"""

from __future__ import annotations

from collections.abc import Mapping

SLOW: Mapping[str, str] = {
    "tests/architecture/test_style.py::test_style[mypy --platform linux edgekit targets tests samples]": (
        "make types and the fast lane of the workflows; ruff stays"
    ),
    "tests/batch/test_dask.py": "test_build_all.py has the same jobs and a killed worker on one machine",
    "tests/compiler/evaluate/test_kept_outputs.py::test_a_comparison_takes_no_more_memory_for_more_samples": (
        "the tests before it show that outputs are in the file, not in memory"
    ),
    "tests/compiler/hub/test_fetch.py::test_the_command_line_builds_from_the_server_of_hf_endpoint": (
        "the tests after it ask the same server from Python"
    ),
    "tests/compiler/importers/test_boosted_trees.py::TestEstimators": (
        "test_exports.py has a stored model of each library"
    ),
    "tests/compiler/sandbox/test_restarts.py::test_a_crafted_model_costs_the_engine_that_it_ends": (
        "test_deaths_are_bounded ends the same child"
    ),
    "tests/devices/test_device_verbs.py": "test_connection.py runs the script on this machine",
    "tests/docs/test_deploy_pages.py": "test_docs.py parses the commands; the CLI's own tests run them",
    "tests/generate/host/pipeline/encoder_decoder/test_moonshine_bundle.py": (
        "test_speech_bundle.py builds Whisper by the same pipeline"
    ),
    "tests/generate/host/pipeline/language/test_adapters.py": (
        "readers/language/test_adapter_files.py reads them, serve/openai/test_adapters.py runs one"
    ),
    "tests/generate/host/pipeline/language/test_draft.py": "tests/generate/device/test_draft_model.py",
    "tests/generate/host/pipeline/language/test_build_memory.py": "test_memory_need.py has what is planned",
    "tests/native/test_cross.py": "builds for other platforms; test_build.py builds for this one",
    "tests/native/test_equality.py": "test_session.py and test_bundle.py compare with Python",
    "tests/native/test_exact_sums.py": "an emulated processor",
    "tests/native/test_kotlin.py": "the wrapper above the same library",
    "tests/native/test_litert.py": "an engine more; test_session.py has ONNX Runtime",
    "tests/native/test_mutations.py": "test_bundle.py has a case of each refusal",
    "tests/native/test_openvino.py": "an engine more; test_session.py has ONNX Runtime",
    "tests/native/test_phone_projects.py": "test_project.py has the C++ project",
    "tests/native/test_sounds.py": "tests/processing has the same sounds in Python",
    "tests/runtime/test_fork_exits.py": "test_fork.py",
    "tests/samples/test_camera_page.py": "test_camera_live.py has what the page is served",
    "tests/samples/test_camera_speech.py": "tests/serve/openai has transcriptions",
    "tests/samples/test_habits.py": "test_public_api.py has the same names",
    "tests/samples/test_notebook.py": "test_examples.py runs the blocks of the documents",
    "tests/samples/test_platforms.py": "tests/release/export has the files",
    "tests/serve/test_proxies.py": "test_grpc.py has the server without a proxy",
    "tests/targets/coreml/test_shared_models.py": "real networks; the conformance cases have the operators",
    "tests/targets/tensorrt/test_quantized_models.py": "real networks; test_quantized_forms.py has the forms",
    "tests/web/test_browser_device.py": "test_report_server.py and test_browser_report.py have the server",
    "tests/web/test_camera.py": "test_page.py opens the same page",
    "tests/web/test_core.py": "tests/native has the cases",
    "tests/web/test_litert.py": "test_page.py has ONNX Runtime",
    "tests/web/test_microphone.py": "test_page.py opens the same page",
    "tests/web/test_other_browsers.py": "test_page.py has Chromium",
    "tests/web/test_signature.py": "tests/signing has the same keys in Python",
    "tests/web/test_webgpu.py": "test_page.py has WebAssembly",
    "tests/web/test_worker.py": "test_page.py runs the worker once",
}
"""Path of a folder, file or test -> where a plain run has the like of it."""

ONE_OF: Mapping[str, int] = {
    "tests/cli/test_live_line.py": 3,
    "tests/compiler/compress/test_remove_channels.py": 4,
    "tests/compiler/evaluate/test_card_rules.py": 3,
    "tests/compiler/importers/test_exports.py::test_the_frameworks_answers": 4,
    "tests/compiler/importers/test_float32_trees.py::test_no_row_of_random_ensembles_is_lost": 6,
    "tests/compiler/quantize/observe/test_observers.py::test_memory_does_not_grow_with_the_arrays": 4,
    "tests/conformance/test_chips.py::test_case": 8,
    "tests/conformance/test_conformance.py::test_case": 8,
    "tests/conformance/test_conformance.py::test_verification_rejects_what_is_known_wrong": 8,
    "tests/generate/host/pipeline/encoder_decoder/test_text2text_bundle.py": 4,  # T5 on each engine
    "tests/generate/targets/test_decoders.py": 3,
    "tests/runtime/test_interrupts.py": 4,
    "tests/targets/coreml/test_kernels.py::test_as_coremltools_infers": 6,
    "tests/targets/tensorrt/test_rules.py": 6,
    "tests/targets/test_shared_models.py": 5,
    "tests/targets/test_shared_weights.py": 5,
    "tests/targets/tflite/test_integer_grid.py": 5,
}
"""Path of a file or test -> N: a plain run has one in N of the cases of each test."""
