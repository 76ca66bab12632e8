"""The result of a run as JUnit's XML, which build servers show as tests."""

from __future__ import annotations

from xml.etree import ElementTree

from .run import ConformanceReport, Verdict


def to_junit(report: ConformanceReport) -> str:
    """Return a test suite with a test for each check: changed messages fail, what has no form is skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"lading conformance {report.server}",
        tests=str(len(report.results)),
        failures=str(report.count(Verdict.CHANGED)),
        skipped=str(report.count(Verdict.NO_FORM) + report.count(Verdict.REFUSED)),
        time=f"{report.seconds:.3f}",
    )
    for one in report.results:
        case = ElementTree.SubElement(suite, "testcase", classname=one.about, name=one.name)
        if one.verdict is Verdict.CHANGED:
            failure = ElementTree.SubElement(case, "failure", message=_escape(one.detail or "the message changed"))
            failure.text = _escape(f"sent: {one.sent}\nreceived: {one.received}")
        elif one.verdict is not Verdict.KEPT:
            ElementTree.SubElement(case, "skipped", message=_escape(f"{one.verdict}: {one.detail}"))
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def _escape(text: str) -> str:
    """Replace letters that XML 1.0 does not have."""
    return "".join(letter if letter >= " " or letter in "\t\n" else repr(letter)[1:-1] for letter in text)
