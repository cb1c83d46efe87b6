"""Lines that protect a server where strangers send sounds, and those whose streams nobody reads."""

from __future__ import annotations

from tests.mutation.removal import Removal

TESTS = "tests/serve/openai/"
SOUNDS = f"{TESTS}test_transcriptions.py::"
FORMS = (f"{TESTS}test_multipart.py::test_malformed_forms_are_refused",)
CLAIMS = (f"{SOUNDS}test_a_small_file_that_claims_hours_is_refused_before_it_is_decoded",)
DECODED = (f"{SOUNDS}test_the_decoded_sound_counts_against_the_memory_of_requests",)
TOO_LARGE = (f"{SOUNDS}test_a_body_that_is_too_large",)
QUEUE = (f"{SOUNDS}test_a_full_queue_a_deadline_and_a_client_that_hangs_up",)
HANGS_UP = (f"{SOUNDS}test_a_client_that_hangs_up_ends_its_transcript_after_a_window",)
ENDPOINTS = "edgekit/serve/openai/endpoints.py"
FIELDS = "edgekit/serve/openai/transcriptions.py"
MULTIPART = "edgekit/serve/openai/multipart.py"
PARTS = "edgekit/serve/served_parts.py"

TRANSCRIPTIONS: tuple[Removal, ...] = (
    Removal(
        ENDPOINTS,
        "self._service.access.check(headers)",
        (f"{SOUNDS}test_without_the_token_nothing_is_read",),
    ),
    Removal(ENDPOINTS, "FORM_BYTES if boundary else BODY_BYTES", TOO_LARGE, "1 << 30"),
    Removal(ENDPOINTS, "lease.hold(len(content) + fields_bytes + request.decoded_bytes)", DECODED),
    Removal(ENDPOINTS, "lease.hold(len(content) + FIELD_COPIES * PARTS * FIELD_BYTES)", DECODED),
    Removal(ENDPOINTS, "watching.add_done_callback(lambda _: run.cancel())", HANGS_UP),
    Removal(FIELDS, "if len(sound) > FILE_BYTES:", TOO_LARGE, "if False:"),
    Removal(FIELDS, "if wav.rate < LEAST_RATE_HZ:", CLAIMS, "if False:"),
    Removal(FIELDS, "if wav.seconds > SECONDS:", CLAIMS, "if False:"),
    Removal(
        "edgekit/compiler/evaluate/sound_files.py",
        "if (chunks := chunks + 1) > CHUNKS_LIMIT:",
        (f"{SOUNDS}test_chunks_of_a_file_are_bounded",),
        "if False:",
    ),
    Removal(MULTIPART, "if (parts := parts + 1) > PARTS:", FORMS, "if False:"),
    Removal(MULTIPART, "position, position + PART_HEAD_BYTES)", FORMS, "at)"),
    Removal(MULTIPART, "if len(content) > FIELD_BYTES:", FORMS, "if False:"),
    Removal(
        MULTIPART,
        'if (name == "file" and file is not None) or (name in fields and not is_list):',
        FORMS,
        "if False:",
    ),
    Removal(MULTIPART, 'if body[position : position + 5] not in (b"--", b"--\\r\\n"):', FORMS, "if False:"),
    Removal(PARTS, "if time.monotonic() > self._due_s:", QUEUE, "if False:"),
    Removal(PARTS, "if self._cancelled:\n            raise CancelledError", HANGS_UP),
    Removal(
        "edgekit/serve/connection_watch.py",
        "            if unread_bytes and now_s > connection.unread_since_s + UNREAD_SECONDS:",
        (f"{TESTS}test_openai_limits.py::test_a_client_that_does_not_read_takes_little_and_is_closed",),
        "            if False:",
    ),
)
