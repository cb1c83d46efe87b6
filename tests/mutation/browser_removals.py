"""Lines that bound the server of ``edgekit devices --browser``, and what is believed of its report."""

from __future__ import annotations

from tests.mutation.removal import Removal

SERVER, REPORT = "edgekit/web/report_server.py", "edgekit/web/browser_report.py"
SERVED = "tests/web/test_report_server.py::test_"
PATHS = (f"{SERVED}paths_without_the_token",)
SLOW = (f"{SERVED}clients_that_are_slow",)
LARGE = (f"{SERVED}a_gigabyte_is_not_read",)
COUNTED = (f"{SERVED}connections_of_one_address_and_of_all",)
LIES = ("tests/web/test_browser_report.py::test_figures_that_lie_are_refused",)
LONGER = ("tests/web/test_browser_report.py::test_measurements_that_take_longer_than_the_page_was_there",)

BROWSERS: tuple[Removal, ...] = (
    Removal(SERVER, "self._addresses.total() >= CONNECTIONS or ", COUNTED, ""),
    Removal(SERVER, " or self._addresses[host] >= ADDRESS_CONNECTIONS", COUNTED, ""),
    Removal(SERVER, "self._addresses[client_address[0]] -= 1", COUNTED),
    Removal(SERVER, "request.settimeout(REQUEST_SECONDS)", SLOW),
    Removal(SERVER, "self.allow(connection, REQUEST_SECONDS)", SLOW),
    Removal(
        SERVER,
        "self.server.allow(self.connection, RESPONSE_SECONDS + size / RESPONSE_BYTES_PER_SECOND)",
        (f"{SERVED}a_client_that_does_not_read",),
    ),
    Removal(SERVER, "if deadline < now:", SLOW, "if False:"),
    Removal(SERVER, "if self._left < 0:", (f"{SERVED}a_long_head_ends_the_connection",), "if False:"),
    Removal(SERVER, "elif int(length) > BODY_BYTES:", LARGE, "elif False:"),
    Removal(SERVER, ' or "Transfer-Encoding" in self.headers', LARGE, ""),
    Removal(
        SERVER,
        'if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):',
        (f"{SERVED}another_key",),
        "if False:",
    ),
    Removal(SERVER, "if self.accepted:", (f"{SERVED}of_several_reports_one_is_accepted",), "if False:"),
    Removal(SERVER, 'return name if same else ""', PATHS, "return name"),
    Removal(
        SERVER,
        "except ReportError as problem:",
        (f"{SERVED}figures_that_lie_do_not_end_the_server",),
        "except KeyError as problem:",
    ),
    Removal(
        SERVER,
        "return self._done.wait(seconds)",
        (f"{SERVED}a_server_ends_in_time",),
        "return self._done.wait(9)",
    ),
    Removal(REPORT, 'if report["bundle"] != bundle.digest:', LIES, "if False:"),
    Removal(REPORT, "if reported != sorted(", LIES, "if 0 and reported != sorted("),
    Removal(REPORT, 'if sum(row.get("seconds", 0) for row in results) > elapsed:', LONGER, "if False:"),
    Removal(REPORT, "or sorted(value) != sorted(FORM[kind])", LIES, ""),
    Removal(
        REPORT,
        "or not math.isfinite(value)",
        ("tests/web/test_browser_report.py::test_a_number_is_finite",),
        "",
    ),
    Removal(REPORT, "if not minimum <= value <= maximum:", LIES, "if False:"),
    Removal(REPORT, "if variant is None or provider not in tuple(ENGINES):", LIES, "if variant is None:"),
    Removal(REPORT, "or len(rows) != len(expected) or", LIES, "or"),
    Removal(REPORT, " or set(measured) != expected", LIES, ""),
    Removal(REPORT, "or lowest < limit_db", LIES, ""),
    Removal(REPORT, " or medians[0] <= 0", LIES, ""),
    Removal(REPORT, 'if runs * times["p50_ms"] * 0.45 > 1e3 * measured:', LIES, "if False:"),
    Removal(REPORT, 'if not min(medians) <= times["p50_ms"] <= max(medians):', LIES, "if False:"),
)
