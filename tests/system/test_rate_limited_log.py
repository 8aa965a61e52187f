import logging

import pytest

from firedex.system.rate_limited_log import RateLimitedLog


def test_lines_beyond_the_limit_are_counted_and_not_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = RateLimitedLog(logging.getLogger("limited"), lines=3, seconds=10.0, clock=lambda: now[0])
    for number in range(1000):
        log.warning("message %d", number)
    assert [record.getMessage() for record in caplog.records] == [
        "message 0",
        "message 1",
        "message 2",
    ]
    now[0] = 10.0
    log.warning("later")
    assert [record.getMessage() for record in caplog.records[3:]] == [
        "997 similar messages were suppressed",
        "later",
    ]
