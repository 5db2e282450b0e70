"""Tests of standard streams that are closed, full, or closed by their reader."""

import pytest
from conftest import records_in, shell


@pytest.mark.parametrize("closed", [">&- 2>&-", "2>&-", "<&- >&- 2>&-", "<&-"])
def test_closed_descriptors_do_not_mix_output_into_files(canned, tmp_path, sweep, closed):
    done = shell(canned, f"$attnbench sweep {sweep.name} --out out {closed}")
    assert done.returncode == 0
    assert len(records_in(tmp_path / "out")) == 4
    assert len(canned.json("table", "out")) == 4
    assert (tmp_path / "out/.lock").read_text().strip().isdigit()


@pytest.mark.parametrize("streams", [">/dev/full 2>/dev/full", "2>/dev/full", "2> >(head -1)"])
def test_a_stream_that_cannot_be_written_does_not_stop_a_sweep(canned, tmp_path, sweep, streams):
    done = shell(canned, f"$attnbench sweep {sweep.name} --out out {streams}")
    assert done.returncode in (0, 2), "it ends by itself, not by a signal"
    assert len(records_in(tmp_path / "out")) == 4


def test_an_error_that_cannot_be_printed_still_has_its_exit_code(attnbench):
    for line in ("$attnbench table none 2>/dev/full", "$attnbench table none >&- 2>&-"):
        assert shell(attnbench, line).returncode == 2
    done = shell(attnbench, "$attnbench --help >/dev/full")
    assert done.returncode == 2 and "standard output" in done.stderr
