"""Lines that refuse or bound something, drawn from the server, bundles, releases, devices and the runtime.

The form of the rows is that of ``drawn_removals.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[tuple[str, str], list[tuple[str, ...]]] = {
    ("edgekit/serve/inference_requests.py", "tests/serve/test_inference_requests.py"): [
        ("if type(value) is not int or not 0 <= value <= PRIORITIES:", "test_what_is_no_request"),
        ("if name in names[:index]:", "test_an_input_that_is_given_twice"),
        (
            "if datatype != DATATYPES[specs[name].dtype] or not whole or not takes(shapes, name, shape):",
            "test_what_is_no_request",
        ),
    ],
    ("edgekit/serve/inference_requests.py", "tests/serve/test_several_shapes.py"): [
        ("if signature is None:", "test_shapes_of_several_inputs_belong_together"),
    ],
    ("edgekit/target/range_runner.py", "tests/target/test_shape_range.py"): [
        ("if signature is None:", "test_a_runner_takes_no_size_beyond_the_range"),
        (
            "if any(not spec.fits(outputs[spec.name].shape) for spec in signature.outputs):",
            "test_an_answer_at_another_size_is_refused",
        ),
    ],
    ("edgekit/serve/request_body.py", "tests/serve/test_request_body.py"): [
        (
            'if message["type"] == "http.disconnect":',
            "test_the_first_part_of_a_body_is_not_taken_for_all_of_it",
        ),
    ],
    ("edgekit/serve/grpc_service.py", "tests/serve/test_grpc.py"): [
        ("if len(message.id) > 256:", "test_more_that_is_refused"),
        (
            "if int(wide.min()) < limits.min or int(wide.max()) > limits.max:",
            "test_a_value_that_its_type_cannot_hold_is_not_wrapped",
        ),
    ],
    ("edgekit/serve/grpc_server.py", "tests/serve/test_grpc.py"): [
        ("if content is None:", "test_a_call_that_ends_without_a_message"),
        (
            "running.cancel()\n\n    def send_trailing",
            "test_a_call_that_is_cancelled_leaves_nothing_behind",
            "pass\n\n    def send_trailing",
        ),
    ],
    ("edgekit/serve/grpc_server.py", "tests/serve/test_grpc_limits.py"): [
        (
            "self._next(requests, call, MESSAGE_SECONDS)",
            "test_a_message_that_does_not_come",
            "next(requests, None)",
        ),
        (
            "STREAM_SECONDS\n                        with",
            "test_an_idle_stream_goes_on",
            "MESSAGE_SECONDS\n                        with",
        ),
        ("lease.hold(self._limit_bytes)", "test_a_message_that_does_not_come", "pass"),
        ("if self._used >= CALLS:", "test_places_of_addresses"),
        ("if self._networks[network] >= self._address:", "test_an_address_leaves_places_to_others"),
        (
            '("grpc.compression_enabled_algorithms_bitset", 1),',
            "test_compressed_messages_are_refused",
            "",
        ),
        (
            '("grpc.absolute_max_metadata_size", METADATA_BYTES),',
            "test_metadata_that_are_too_large",
            "",
        ),
        (
            'service.access.check_token(call.header("authorization"))',
            "test_the_token_is_checked_before_a_message_is_there",
            "pass",
        ),
    ],
    ("edgekit/serve/grpc_server.py", "tests/serve/test_grpc_strangers.py"): [
        (
            '("grpc.max_allowed_incoming_connections", connections),',
            "test_connections_have_a_limit_of_their_own",
            "",
        ),
        (
            "with self._limits.limited(call, MESSAGE_SECONDS):  # waits for its client to read",
            "test_a_stream_whose_client_never_reads",
            "if True:",
        ),
        ('os.environ.setdefault("GRPC_VERBOSITY", "NONE")', "test_clients_do_not_write_the_log", "pass"),
    ],
    ("edgekit/serve/event_loop.py", "tests/serve/test_tls.py"): [
        (
            'if not self._connections.open(transport, str(peer[0]) if peer else ""):',
            "test_handshakes_count_as_connections",
        ),
    ],
    ("edgekit/compiler/hub/client.py", "tests/compiler/hub/test_fetch.py"): [
        ("if time.monotonic() > end_s:", "test_a_slow_file_is_stopped"),
        ("min(pause_s, PAUSE_SECONDS)", "test_a_server_does_not_choose_how_long_a_client_waits", "pause_s"),
        ("if file.tell() > size_bytes:", "test_an_endless_file_is_stopped"),
    ],
    ("edgekit/serve/paced_protocol.py", "tests/serve/test_fair_turns.py"): [
        (
            "transport.is_closing():\n            self._read_later()",
            "test_a_large_piece_is_followed_by_a_turn_of_others_where_there_are_some",
            "transport.is_closing():\n            pass",
        ),
    ],
    ("edgekit/serve/fair_turns.py", "tests/serve/test_fair_turns.py"): [
        (
            "waiting.extend(self._waiting.pop(network, ()))  # those with a rest",
            "test_a_rest_is_processed_too_where_others_wait",
            "pass",
        ),
    ],
    ("edgekit/serve/model_table.py", "tests/serve/test_repository.py"): [
        (
            "if model is None:\n                raise RequestError(f",
            "test_unloading_lets_requests_end",
            "if False:\n                raise RequestError(f",
        ),
    ],
    ("edgekit/serve/served_models.py", "tests/serve/test_worker_group.py"): [
        (
            "        if problems:\n            raise RequestError(problems[0], 409)",
            "test_where_one_can_not_follow_all_are_as_before",
            "        pass",
        ),
    ],
    ("edgekit/serve/service.py", "tests/serve/test_worker_group.py"): [
        ("if len(self._changes) >= CHANGES:", "test_more_loads_than_may_wait_are_refused"),
    ],
    ("edgekit/serve/service.py", "tests/serve/test_pictures.py"): [
        ('if origin.partition("://")[2] != host:', "test_pages_of_other_servers_are_refused"),
    ],
    ("edgekit/serve/service.py", "tests/serve/test_server.py"): [
        ("if not self._places.acquire(blocking=False):", "test_too_many_at_once"),
        ('hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())', "test_a_token", "True"),
    ],
    ("edgekit/serve/pictures.py", "tests/serve/test_pictures.py"): [
        ("if len(feed.listeners) >= LISTENERS:", "test_more_listeners_than_a_model_may_have"),
    ],
    ("edgekit/serve/connections.py", "tests/serve/test_connections.py"): [
        ("if total < 8:", "test_the_limit_keeps_within_the_open_files"),
        (
            "if count >= self._limits.address:",
            "test_an_address_whose_requests_are_all_being_answered_gets_no_more",
        ),
        (
            "return str(IPv6Address(int(address) >> 64 << 64))",
            "test_a_client_with_many_addresses_of_one_network_has_one_share",
            "return host",
        ),
    ],
    ("edgekit/serve/http_protocol.py", "tests/serve/test_http_limits.py"): [
        ("if self._end_after_answers():", "test_a_fault_behind_requests_that_wait"),
        (
            "cycle.disconnected = True",
            "test_clients_that_end_while_they_are_answered",
            "pass",
        ),
        (
            "wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)",
            "test_a_body_that_drips_wakes_the_server_when_it_is_whole",
            "wire.fileno()",
        ),
        ("elif self._headers > HEADERS:", "test_the_number_of_headers", "elif False:"),
        ("if self._since_parsed > HEAD_BYTES:", "test_a_head_without_end_is_refused_before_it_takes_memory"),
        ("if len(self.pipeline) >= PIPELINED:", "test_more_requests_than_a_connection_may_have_waiting"),
        ("if self._rest_bytes > DISCARDED_BYTES:", "test_how_much_may_come_after_an_answer"),
    ],
    ("edgekit/serve/websocket_protocol.py", "tests/serve/test_websocket_limits.py"): [
        ("if len(self.frames) >= FRAMES:", "test_a_message_of_many_frames_and_a_long_text"),
        ('if self.curr_msg_data_type == "text":', "test_a_text_is_not_kept"),
        (
            "if size_bytes <= RELEASED_BYTES:",
            "test_large_messages_of_closed_connections_are_released_one_after_the_other",
            "if True:",
        ),
    ],
    ("edgekit/serve/service.py", "tests/serve/test_websocket_limits.py"): [
        (
            "error.__traceback__, error = None, error.__context__",
            "test_a_connection_leaves_nothing_to_collect",
            "error = error.__context__",
        ),
    ],
    ("edgekit/serve/http_protocol.py", "tests/serve/test_websocket_limits.py"): [
        ('cast("Any", self).parser = None', "test_a_connection_leaves_nothing_to_collect", "pass"),
    ],
    ("edgekit/serve/request_memory.py", "tests/serve/test_request_memory.py"): [
        (
            "if network and in_use and in_use + size_bytes > limit * self.share:",
            "test_an_address_has_a_share_and_its_only_request_all",
        ),
        ("if size_bytes > limit:", "test_what_can_never_be_had_is_not_to_be_tried_again"),
        (
            "1.0 if size_bytes <= SMALL_BYTES else 1.0 - SMALL_PART",
            "test_large_requests_leave_a_part_for_small_ones",
            "1.0",
        ),
    ],
    ("edgekit/serve/worker_restarts.py", "tests/serve/test_worker_restarts.py"): [
        (
            "min(LONGEST_SECONDS, 2.0 ** min(before.count - 1, 30))",
            "test_the_pause_doubles_up_to_its_limit_and_begins_anew_after_a_steady_time",
            "0.0",
        ),
    ],
    ("edgekit/bundle/manifest.py", "tests/compiler/build/test_cascade_bundle.py"): [
        (
            'if set(names) != set(cascade["bundles"]):',
            "test_a_manifest_that_does_not_fit_its_stages_is_refused",
        ),
    ],
    ("edgekit/bundle/bundle.py", "tests/compiler/build/test_cascade_bundle.py"): [
        ('if bundle.digest != declared["digest"]:', "test_a_stage_is_the_bundle_that_the_manifest_names"),
    ],
    ("edgekit/bundle/manifest.py", "tests/bundle/test_hostile_bundle.py"): [
        (
            'if part in ("", ".", "..") or part != part.strip(" ") or part.endswith("."):',
            "test_hostile_values",
        ),
        ('if variant["files"] and len(shrunk["golden"]) != len(manifest["golden"]):', "test_hostile_values"),
    ],
    ("edgekit/bundle/model_version.py", "tests/bundle/test_model_version.py"): [
        ("if not is_version(version):", "test_what_is_no_version_is_refused"),
    ],
    ("edgekit/system/formats/json_schema.py", "tests/bundle/test_hostile_bundle.py"): [
        ("if type(value) is not type(expected) or value != expected:", "test_hostile_values"),
    ],
    ("edgekit/system/formats/strict_json.py", "tests/bundle/test_hostile_bundle.py"): [
        ("if key in keys:", "test_hostile_json"),
    ],
    ("edgekit/system/formats/npy.py", "tests/bundle/test_hostile_bundle.py"): [
        ("if len(prefix) < 10 or prefix[:8] != _MAGIC:", "test_hostile_golden_arrays"),
        ("if data_start > HEADER_LIMIT_BYTES:", "test_hostile_golden_arrays"),
    ],
    ("edgekit/release/updates/download.py", "tests/release/updates/test_attacks.py"): [
        ("if offset + len(piece) > target.size_bytes:", "test_an_endless_target"),
    ],
    ("edgekit/release/updates/download.py", "tests/release/updates/test_network.py"): [
        (
            "if (free := shutil.disk_usage(folder).free) < missing:",
            "test_a_full_disk_is_told_before_anything_is_fetched",
        ),
    ],
    ("edgekit/runtime/http_connection.py", "tests/runtime/remote/test_remote_session.py"): [
        (
            "if not (name + value).isprintable() or not (name + value).isascii():",
            "test_what_does_not_fit_is_told",
        ),
    ],
    ("edgekit/runtime/http_connection.py", "tests/runtime/remote/test_remote_limits.py"): [
        (
            "if max(len(content), declared) > limit_bytes:",
            "test_an_answer_that_is_too_long_by_its_own_word_is_not_read",
        ),
    ],
    ("edgekit/runtime/remote/remote_session.py", "tests/runtime/remote/test_remote_session.py"): [
        (
            "fitted(feeds, self.session.bundle.shapes)",
            "test_feeds_that_do_not_fit_reach_nobody",
            "pass",
        ),
    ],
    ("edgekit/runtime/remote/inference_protocol.py", "tests/runtime/remote/test_remote_limits.py"): [
        ("if values > limit_values:", "test_what_cannot_be_the_answer_is_not_parsed"),
    ],
    ("edgekit/runtime/caching/frame_signature.py", "tests/runtime/caching/test_similar.py"): [
        (
            "if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape[2:] != (3,):",
            "test_what_is_no_frame",
        ),
    ],
    ("edgekit/runtime/metrics/device_report.py", "tests/release/fleet/test_fleet.py"): [
        ('if NAME.fullmatch(name) is None and (name or field != "channel"):', "test_names_of_devices"),
    ],
    ("edgekit/runtime/latency/budget.py", "tests/runtime/latency/test_budget_threads.py"): [
        (
            "if state is self._state:",
            "test_a_prediction_during_a_switch_counts_for_neither_variant",
            "if True:",
        ),
        (
            "with self._running:\n            for replica",
            "test_an_engine_is_freed_after_the_run_of_another_thread",
            "if True:\n            for replica",
        ),
        (
            "self.close()\n            raise",
            "test_an_interrupt_while_variants_are_loaded_leaves_none_loaded",
            "raise",
        ),
        (
            "self._lock, self._running = threading.Lock(), threading.Lock()\n        if",
            "test_a_forked_process_is_answered_by_the_session",
            "if",
        ),
    ],
    ("edgekit/devices/device_script.py", "tests/devices/test_connection.py"): [
        ("if checksum.hexdigest() != digest:", "test_what_is_wrong_is_thrown_away"),
        (
            'if sys.platform != "win32" and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):',
            "test_a_folder_that_others_may_write_to_is_not_used",
        ),
    ],
    ("edgekit/devices/merge.py", "tests/devices/test_merge.py"): [
        (
            "if _built(bundle.manifest) != _built(measured_of):",
            "test_a_bundle_that_was_built_again_is_left_as_it_is",
        ),
    ],
    ("edgekit/signing/signature_file.py", "tests/signing/test_trusted_keys.py"): [
        ("if not isinstance(hint, str):", "test_a_signature_with_parts_replaced_is_one_clear_error"),
    ],
    ("edgekit/compiler/sandbox/messages.py", "tests/compiler/sandbox/test_contained.py"): [
        ('if values["severity"] not in _SEVERITIES:', "test_what_no_child_of_ours_says_is_refused"),
    ],
}
"""(file, file of tests) -> (lines, test, what stands there instead)."""
