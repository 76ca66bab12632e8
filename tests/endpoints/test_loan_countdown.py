"""When the socket of a connection is lent: soon at first, later after each loan that was not used."""

from __future__ import annotations

from lading.endpoints.io.lent_lines import LEND_AFTER, LEND_AFTER_MAX, LoanCountdown


def test_each_unused_loan_doubles_the_requests_before_the_next() -> None:
    loan = LoanCountdown()
    counts = []
    for _ in range(11):
        counts.append(loan.requests_left)
        loan.restart()
    assert counts == [2, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    loan.restart()
    assert loan.requests_left == LEND_AFTER_MAX
    loan.note_used()
    loan.restart()
    assert loan.requests_left == LEND_AFTER
