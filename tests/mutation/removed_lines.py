"""Remove a line that protects something, and see whether a test notices. Goal: none survives.

python -m tests.mutation.removed_lines [WORD]...   # those whose file or line holds a word; all, without

A suite that passes on broken code says nothing. Each row of REMOVALS names lines whose loss is a fault that
no other line makes good, and the tests that must fail without them. The tree is copied to a temporary folder;
there the lines are replaced, one row after the other, and the row's tests run. They must pass on the copy as
it is and fail without the lines. It ends with 1 where some survive, with 2 where that cannot be told: a line
that is not there any more, a test that does not pass or is not found.

To add a row: the file, its exact text with as many lines as make it unique, the tests. ``instead`` is what
stands there without it; a statement is removed by ``pass`` at its indentation. A row whose test is still to
be written has the test ``TO_COME``, and counts as a survivor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.browser_removals import BROWSERS
from tests.mutation.drawn_removals import DRAWN
from tests.mutation.removal import TO_COME, Removal
from tests.mutation.transcription_removals import TRANSCRIPTIONS

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("edgekit", "targets", "tests", "samples", "docs", "setup.cfg", "pyproject.toml")
PASSED, FAILED = 0, 1
"""What pytest ends with; anything else says that tests could not be run."""


PROBE = "tests/runtime/loading/test_probe.py::"
CONFINED = (f"{PROBE}test_the_child_is_confined_when_an_engine_loads",)
MODELS_CHILD = "tests/compiler/sandbox/test_contained.py::test_the_child_is_confined"
DURABLE = "tests/system/test_atomic_files.py::"
NAMED = (f"{DURABLE}test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_that_is_said",)
CACHE = "tests/runtime/loading/test_unpacked_files.py::"
UNPACKED = (f"{CACHE}test_unpacked_files_are_on_the_disk_before_their_folder_has_its_name",)
OWNERSHIP = "tests/system/test_ownership.py::"
BLAME = "tests/runtime/test_store_blame.py::"
CANDIDATES = "tests/runtime/store/test_candidates.py::"
FAULTS = "tests/compiler/build/test_faults.py::"
ENGINES = "tests/runtime/device_builds/test_build.py::"
FOREIGN_ENGINES = (f"{ENGINES}test_no_engine_of_a_folder_that_others_may_write_to_is_loaded_or_built",)
RECORDS = (
    "tests/system/test_json_records.py::test_what_others_could_have_written_is_not_believed_and_not_added_to",
)
TELEMETRY = "tests/system/test_telemetry.py::"
BEFORE_THE_IMPORT = f"{TELEMETRY}test_every_way_to_onnx_runtime_turns_it_off_before_the_import"
LATER_EVENTS = f"{TELEMETRY}test_later_events_are_off_where_the_app_imported_it_first"
OTHERS = (f"{OWNERSHIP}test_what_others_may_write_to_is_refused",)
A_FILE_OF_OURS = (f"{OWNERSHIP}test_a_file_is_read_where_it_is_one_of_ours",)
OPENED = (f"{BLAME}test_confirm_is_about_what_was_opened_and_not_what_was_installed_since",)
SLOTS = ("tests/runtime/test_store_ownership.py::test_what_others_may_write_to_is_not_believed",)

REMOVALS: tuple[Removal, ...] = (
    *BROWSERS,
    *DRAWN,
    *TRANSCRIPTIONS,
    # --- one request at a time ---------------------------------------------------------------------------
    Removal(
        "edgekit/runtime/session.py",
        "with self._lock:\n            if chain.changes_pending:",
        ("tests/runtime/test_threads.py::test_threads_get_their_own_answers",),
        "if True:\n            if chain.changes_pending:",
    ),
    # --- a fault is one variant's, and no fault is hidden as one ------------------------------------------
    Removal(
        "edgekit/compiler/build/faults.py",
        "if any(problem is caller_error for caller_error in self._of_caller):\n                raise",
        (f"{FAULTS}test_what_the_progress_function_raises_is_no_bug",),
    ),
    Removal(
        "edgekit/compiler/build/stages.py",
        "refuse_if_all_are_lost(job.name, job.faults, job.targets, variants)\n    return variants",
        (f"{FAULTS}test_nothing_is_written_if_every_target_meets_a_fault",),
        "return variants",
    ),
    # --- only a whole search is not repeated --------------------------------------------------------------
    Removal(
        "edgekit/compiler/build/int8_search.py",
        "if not clock.left_out and not candidates.deaths:",
        ("tests/compiler/build/test_int8_search.py::test_a_search_that_was_cut_goes_on_until_it_is_whole",),
        "if not candidates.deaths:",
    ),
    # --- no packet at an engine's import -----------------------------------------------------------------
    Removal("edgekit/system/onnx_runtime.py", 'os.environ[SWITCH] = "1"', (BEFORE_THE_IMPORT,)),
    Removal("edgekit/system/onnx_runtime.py", "package.disable_telemetry_events()", (LATER_EVENTS,)),
    # --- the probe's child is confined -------------------------------------------------------------------
    Removal(
        "edgekit/runtime/loading/probe_child.py",
        'child_limits.confine(request["memory_mb"], request["seconds"])',
        CONFINED,
    ),
    Removal(
        "edgekit/runtime/device_builds/child_limits.py",
        "**({resource.RLIMIT_AS: memory_mb << 20} if memory_mb else {}),",
        CONFINED,
        "",
    ),
    Removal(
        "edgekit/runtime/device_builds/child_limits.py",
        "resource.RLIMIT_CPU: int(seconds) + 1,",
        CONFINED,
        "",
    ),
    Removal("edgekit/runtime/device_builds/child_limits.py", "resource.RLIMIT_CORE: 0,", CONFINED, ""),
    Removal(
        "edgekit/runtime/device_builds/child_limits.py", "resource.setrlimit(limit, (value, value))", CONFINED
    ),
    Removal(
        "edgekit/runtime/device_builds/child_limits.py",
        "ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)",
        CONFINED,
    ),
    Removal("edgekit/system/confinement.py", 'file.write("1000")', CONFINED),
    Removal(
        "edgekit/system/confinement.py",
        "ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)",
        CONFINED,
    ),
    # --- a model's child is confined ---------------------------------------------------------------------
    Removal("edgekit/compiler/sandbox/confined_start.py", "confine(Bounds(*bounds))", (MODELS_CHILD,)),
    # --- the probe is not switched off -------------------------------------------------------------------
    Removal(
        "edgekit/runtime/loading/probe.py",
        "if background.prepares_on_device(variant.target) or",
        (f"{PROBE}test_a_bundle_cannot_switch_the_probe_off",),
        "if variant.options.get(background.OPTION) or",
    ),
    Removal(
        "edgekit/runtime/background.py",
        " if prepares_on_device(name)]",
        (f"{PROBE}test_a_bundle_cannot_switch_the_probe_off",),
        "]",
    ),
    Removal(
        "edgekit/runtime/loading/load_variant.py",
        "self.probe(variant, on_state)",
        (f"{PROBE}test_what_stands_by_is_probed_too",),
    ),
    Removal(
        "edgekit/system/json_records.py",
        "ownership.refuse_foreign(folder)\n        content",
        RECORDS,
        "content",
    ),
    Removal(
        "edgekit/system/json_records.py",
        "private_folder(folder)\n        write_atomically",
        RECORDS,
        "write_atomically",
    ),
    Removal("edgekit/system/json_records.py", "private_folder(folder)\n        draft", RECORDS, "draft"),
    # --- whose folders and files are ---------------------------------------------------------------------
    Removal(
        "edgekit/system/atomic_files.py",
        "ownership.refuse_foreign(folder, parents)\n        return",
        RECORDS,
        "return",
    ),
    Removal(
        "edgekit/system/ownership.py",
        'raise PermissionError(0, f"{subject} belongs to user {facts.st_uid}")',
        (
            f"{OWNERSHIP}test_what_is_another_users_is_refused",
            f"{OWNERSHIP}test_a_user_trusts_root_and_root_trusts_no_user",
        ),
    ),
    Removal(
        "edgekit/system/ownership.py",
        'raise PermissionError(0, f"other users can write to',
        OTHERS,
        'print(f"(',
    ),
    Removal("edgekit/system/ownership.py", "_has_link(os.path.realpath(path), parents)", OTHERS),
    Removal("edgekit/system/regular_file.py", '("O_NOFOLLOW",)', A_FILE_OF_OURS, "()"),
    Removal("edgekit/system/ownership.py", "raise PermissionError(0, reason)", A_FILE_OF_OURS),
    Removal(
        "edgekit/system/regular_file.py",
        'raise NotRegularFileError("it is not a regular file", path)',
        A_FILE_OF_OURS,
    ),
    Removal(
        "edgekit/runtime/loading/unpacked_files.py",
        "private_folder(root, parents)",
        (f"{CACHE}test_a_folder_that_others_can_write_to_is_not_trusted",),
        "root.mkdir(parents=True, exist_ok=True)",
    ),
    Removal(
        "edgekit/runtime/loading/unpacked_files.py",
        "ownership.refuse_foreign(folder, parents=False)",
        (f"{CACHE}test_what_others_could_have_written_is_unpacked_again",),
    ),
    Removal(
        "edgekit/runtime/loading/unpacked_files.py",
        "if ownership.why_foreign(facts):\n                return False",
        (f"{CACHE}test_what_others_could_have_written_is_unpacked_again",),
    ),
    Removal(
        "edgekit/runtime/device_builds/engine_store.py",
        "self._refuse_foreign()\n        stored",
        FOREIGN_ENGINES,
        "known",
    ),
    Removal(
        "edgekit/system/atomic_files.py",
        "flush_folder(directory.parent)\n    ownership.refuse_foreign(folder, parents)",
        (f"{DURABLE}test_a_folder_that_another_user_makes_first_is_refused",),
        "flush_folder(each.parent)",
    ),
    Removal(
        "edgekit/runtime/device_builds/engine_store.py",
        "self._refuse_foreign()\n        if not folder",
        FOREIGN_ENGINES,
        "if not folder",
    ),
    Removal(
        "edgekit/runtime/device_builds/engine_store.py",
        "ownership.refuse_foreign(folder, parents=False)",
        FOREIGN_ENGINES,
    ),
    Removal(
        "edgekit/runtime/store/files.py",
        "private_folder(folder, parents=False)",
        SLOTS,
        "folder.mkdir(parents=True, exist_ok=True)",
    ),
    Removal("edgekit/runtime/store/files.py", "ownership.refuse_foreign(directory, parents=False)", SLOTS),
    # --- what is written is on the disk ------------------------------------------------------------------
    Removal(
        "edgekit/system/atomic_files.py",
        "file.flush()\n            os.fsync(file.fileno())",
        NAMED,
        "os.fsync(file.fileno())",
    ),
    Removal("edgekit/system/atomic_files.py", "os.fsync(file.fileno())", NAMED),
    Removal("edgekit/system/atomic_files.py", "flush_folder(path.parent)", NAMED),
    Removal(
        "edgekit/system/atomic_files.py",
        "flush_folder(directory.parent)",
        (f"{DURABLE}test_a_new_folder_is_on_the_disk_and_for_this_user_only",),
    ),
    Removal("edgekit/system/atomic_files.py", "os.fsync(handle)", NAMED),
    Removal(
        "edgekit/runtime/loading/unpacked_files.py",
        "file.flush()\n                    os.fsync(file.fileno())",
        UNPACKED,
    ),
    Removal("edgekit/runtime/loading/unpacked_files.py", "flush_folder(path.parent)", UNPACKED),
    Removal("edgekit/runtime/loading/unpacked_files.py", "flush_folder(root)", UNPACKED),
    # --- a store gives up for a bundle's own faults, and confirms what it opened --------------------------
    Removal(
        "edgekit/runtime/store/bundle_store.py", "return self.opened\n", OPENED, "return self.state.current\n"
    ),
    Removal(
        "edgekit/runtime/store/bundle_store.py",
        "self.opened, self._watched = digest,",
        OPENED,
        "self._watched =",
    ),
    Removal(
        "edgekit/runtime/store/bundle_store.py",
        "self._files.hold(digest)",
        (f"{CANDIDATES}test_what_another_process_has_open_is_not_removed",),
    ),
    Removal(
        "edgekit/runtime/store/bundle_store.py",
        "action = failure_action(blame, digest in self.state.good)",
        (f"{BLAME}test_what_may_pass_costs_no_confirmed_bundle",),
        'action = "give up"',
    ),
    Removal(
        "edgekit/runtime/store/bundle_store.py",
        "self._uncount(digest)\n                raise",
        (f"{BLAME}test_an_argument_that_does_not_fit_counts_for_no_start",),
        "raise",
    ),
    Removal(
        "edgekit/runtime/store/files.py",
        "raise problem  # writing now",
        (f"{BLAME}test_states_that_cannot_be_read_are_left_as_they_are",),
        "pass  #",
    ),
    Removal(
        "edgekit/runtime/store/files.py",
        "for state in states for digest in state.named",
        (f"{BLAME}test_no_confirmed_file_is_removed_in_the_step_that_gives_it_up",),
        "for digest in max(states, key=_serial).named",
    ),
    Removal(
        "edgekit/runtime/store/slots.py",
        'return "bundle", "its file is not the bundle that was installed"',
        (f"{BLAME}test_a_slot_that_is_another_bundle_is_not_opened",),
    ),
    Removal(
        "edgekit/runtime/store/state.py",
        "if digest in dict(state.given_up):\n        return state",
        (f"{BLAME}test_what_was_given_up_meanwhile_stays_so",),
    ),
)


def removed(text: str, removal: Removal) -> str:
    """The text of a file without the lines.

    Raises:
        ValueError: they are not there, or more than once.
    """
    found = text.count(removal.lines)
    if found != 1:
        raise ValueError(f"{removal.file}: found {found} times, must be once: {removal.lines!r}")
    return text.replace(removal.lines, removal.instead)


def main(words: Sequence[str]) -> int:
    """Try the rows; the number to end with."""
    rows = [r for r in REMOVALS if not words or any(word in r.file + r.lines for word in words)]
    ends: list[str] = []
    with tempfile.TemporaryDirectory(prefix="edgekit-removed-") as name:
        copy = Path(name)
        for part in COPIED:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, copy / part)
        _refuse_another_tree(copy)
        tests = sorted({test for row in rows for test in row.tests} - {TO_COME})
        if tests and (code := _run(copy, tests)) != PASSED:
            print(f"the tests do not pass on the tree as it is (pytest ended with {code})")
            return 2
        for row in rows:
            began = time.perf_counter()
            ends.append(_tried(copy, row))
            line = row.lines.partition("\n")[0]
            print(f"{ends[-1]:8} {time.perf_counter() - began:5.1f} s  {row.file}: {line}", flush=True)
    survivors, unknown = ends.count("survived"), ends.count("unknown")
    print(f"{len(rows)} removals, {survivors} survivors, {unknown} that cannot be told")
    return 2 if unknown else 1 if survivors else 0


def _tried(copy: Path, row: Removal) -> str:
    if TO_COME in row.tests:
        return "survived"
    path = copy / row.file
    text = path.read_text("utf-8")
    try:
        path.write_text(removed(text, row), "utf-8")
        code = _run(copy, row.tests)
    except ValueError as problem:
        print(problem)
        return "unknown"
    finally:
        path.write_text(text, "utf-8")
    return {PASSED: "survived", FAILED: "noticed"}.get(code, "unknown")


def _run(copy: Path, tests: Sequence[str]) -> int:
    """What pytest ends with."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command, cwd=copy, env=_surroundings(copy), stdout=subprocess.DEVNULL, check=False
    ).returncode


def _refuse_another_tree(copy: Path) -> None:
    """The package may be installed from the tree itself: then nothing here would be tested."""
    script = "import edgekit; print(edgekit.__file__)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=copy, env=_surroundings(copy), capture_output=True, text=True, check=True
    )
    if Path(done.stdout.strip()).parents[1].resolve() != copy.resolve():
        raise SystemExit(f"the copy's tests would import {done.stdout.strip()}")


def _surroundings(copy: Path) -> dict[str, str]:
    path = os.pathsep.join([str(copy), str(copy / "targets")])
    shared = os.environ.get("EDGEKIT_SHARED", str(ROOT.parent / "shared"))
    # A file that is changed twice within a second would be taken for its compiled form.
    return {**os.environ, "PYTHONPATH": path, "EDGEKIT_SHARED": shared, "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
