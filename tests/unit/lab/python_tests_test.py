"""Tests of a pytest that ran elsewhere, as tools/test counts them."""
import pathlib

from lab.python_tests import count_report
from lab.results import Results

REPORT = """<testsuites><testsuite>
<testcase classname="unit.a.TestA" name="test_good"/>
<testcase classname="unit.a.TestA" name="test_bad"><failure message="1 is not 2">where</failure></testcase>
<testcase classname="unit.a" name="test_left_out"><skipped message="no GPU here"/></testcase>
<testcase classname="unit.a" name="test_broken"><error message="its fixture failed">why</error></testcase>
</testsuite></testsuites>"""


def test_each_case_counts_and_skips_keep_their_reasons(tmp_path: pathlib.Path, capsys):
    results, report = Results(), tmp_path / "report.xml"
    report.write_text(REPORT)
    assert count_report(results, "unit: a", report, "")
    assert (results.passed, results.skipped) == (1, 1)
    assert results.failed == ["unit: a TestA.test_bad", "unit: a a.test_broken"]
    said = capsys.readouterr().out
    assert "1 is not 2" in said and "skipped unit: a a.test_left_out: no GPU here" in said


def test_no_report_is_no_success(tmp_path: pathlib.Path):
    results = Results()
    assert not count_report(results, "unit: a", tmp_path / "none.xml", "")
    (tmp_path / "empty.xml").write_text("<testsuites/>")
    assert not count_report(results, "unit: a", tmp_path / "empty.xml", "")


def test_the_last_line_stands_alone(capsys):
    results = Results()
    results.add("good", "")
    results.add("bad", "why")
    results.skip("other", "because")
    assert results.summary() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
