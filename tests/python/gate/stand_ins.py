"""What the tests of `attnbench gate` share: stand-ins for workers, which answer with given times, and a gate that runs on two of them."""

import pytest
from conftest import strict_json, write_sweep

# The exit codes of the gate.
PASS, REGRESSION, USAGE, INCONCLUSIVE, UNUSABLE = 0, 1, 2, 3, 4

# Shell code of a worker's answer to `measure`. The time of a process is `middle`, multiplied by a
# term of a deterministic sequence instead of noise, so that the verdicts do not depend on chance.
# Builds with another `phase` have another sequence.
ANSWER = """middle={middle}; noise={noise}
counter=$(dirname "$0")/counter
count=$(cat "$counter" 2>/dev/null || echo 0)
echo $((count + 1)) > "$counter"
awk -v c=$count -v m=$middle -v n=$noise 'BEGIN {{ t = m * exp(n * sin(2.4 * c + {phase}));
printf "{{\\"outcome\\": \\"measured\\", \\"implementation\\": \\"stand-in\\", \\"measured_s\\": 0.01, ";
printf "\\"time_first_ms\\": 1, \\"time_samples_ms\\": [%.9f, %.9f, %.9f, %.9f, %.9f], ", t, t, t, t, t;
printf "\\"samples\\": 5, \\"peak_extra_bytes\\": {memory}}}\\n" }}' >&3
"""


@pytest.fixture
def suite(tmp_path):
    """The path of a sweep file of one case."""
    return write_sweep(tmp_path / "suite.toml", method="linear", query_len=32)


@pytest.fixture
def build_of(workers):
    """build_of(middle) is the folder of a build whose case takes `middle` ms."""

    def make(middle=10.0, noise=0.01, memory=1024, phase=0, **commands):
        measure = ANSWER.format(middle=middle, noise=noise, memory=memory, phase=phase)
        return workers.make(**({"measure": measure} | commands)).parent

    return make


@pytest.fixture
def gate(attnbench, suite):
    """Runs the gate on two builds, and expects the exit code."""

    def run(base, candidate, *more, code=PASS):
        return attnbench("gate", suite, "--base", base, "--candidate", candidate, "-q", *more, code=code)

    return run


def verdicts(done):
    """The result of the gate, and the verdict of each case by its method."""
    report = strict_json(done.stdout)
    return report["result"], {case["name"].split()[0]: case["verdict"] for case in report["cases"]}
