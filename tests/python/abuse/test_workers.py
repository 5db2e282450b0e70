"""Tests of workers that are killed or that cannot get what they need."""

import pytest
from conftest import shell

QUESTIONS = ["describe", "environment", "plan", "ceilings"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("echo my last words >&2; kill -KILL $$", "the worker died of signal 9 (Killed); it said: my last words"),
        ("echo my last words >&2; exit 7", "the worker ended with exit code 7; it said: my last words"),
        ("answer '{\"a\": [1, 2'", "the worker's answer is not JSON: {\"a\": [1, 2"),
    ],
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_worker_that_does_not_answer_a_question(attnbench, workers, sweep, question, end, said):
    worker = workers.make(**{"measure": "good", question: end})
    message = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=1).stderr
    assert f"{worker} {question}` broke" in message and said in message


def test_a_deeply_nested_answer_is_not_read(attnbench, workers, sweep):
    deep = "printf '%0300000d\\n' 0 | tr 0 '[' >&3"
    worker = workers.make(measure="good", environment=deep)
    message = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=1).stderr
    assert "the worker's answer is not JSON: [[[[" in message


def test_the_limit_of_processor_time_ends_a_worker(attnbench, workers):
    """The stand-in computes without an end, since the real one needs less than the limit on a fast processor."""
    spinning = attnbench.with_worker(workers.make(ceilings="while :; do :; done"))
    done = shell(spinning, "ulimit -t 1; $attnbench doctor")
    assert done.returncode == 1
    assert f"{spinning.worker} ceilings` broke: the worker died of signal" in done.stderr


def test_threads_that_cannot_be_started_are_an_error(attnbench):
    """No thread fits into the memory that the process may have, because each needs a large stack."""
    limits = "ulimit -Ss 40000000 && ulimit -v 30000000"
    done = shell(attnbench, f"{limits} && $attnbench measure linear --query-len 64 --threads 2")
    assert done.returncode == 1
    assert "cannot start thread 2 of" in done.stdout + done.stderr
