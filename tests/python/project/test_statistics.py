"""Compares the statistics in C++ with those of SciPy and NumPy on random inputs."""

import itertools
import json
import math
import subprocess

import numpy as np
import pytest
from scipy import stats

CLOSE = {"rel": 1e-9, "abs": 1e-12}


@pytest.fixture(scope="module")
def probe(build):
    """probe(name, *arguments) calls a function of harness/statistics/statistics.h."""
    program = build / "tests/statistics_probe"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def call(name, *arguments):
            listed = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
            process.stdin.write(json.dumps([name, *listed]) + "\n")
            process.stdin.flush()
            return unpacked(json.loads(process.stdout.readline()))

        yield call
        process.stdin.close()


def unpacked(value):
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def rng():
    return np.random.default_rng(20260101)


def pairs(random, ties, count=60):
    """Yields pairs of samples, each of 1 to 20 values; with `ties`, values occur several times."""
    for _ in range(count):
        n, m = random.integers(1, 21, 2)
        a, b = random.lognormal(0, 0.3, n), random.lognormal(random.normal(0, 0.3), 0.3, m)
        yield (a.round(1) + 0.1, b.round(1) + 0.1) if ties else (a, b)


def test_quantiles_and_medians_agree_with_numpy(probe):
    random = rng()
    for n in (*range(1, 12), 100, 1001):
        x = np.sort(random.normal(size=n))
        for p in (0, 0.025, 0.25, 0.5, 0.9, 1, random.random()):
            assert probe("quantile", x, p) == pytest.approx(np.quantile(x, p), **CLOSE)
        assert probe("median", random.permutation(x)) == pytest.approx(np.median(x), **CLOSE)


def test_exact_mann_whitney_p_agrees_with_scipy(probe):
    for a, b in pairs(rng(), ties=False):
        expected = stats.mannwhitneyu(b, a, method="exact").pvalue
        assert probe("mann_whitney_exact_p", a, b) == pytest.approx(expected, **CLOSE)
        assert probe("mann_whitney_p", a, b) == pytest.approx(expected, **CLOSE)


def test_the_smallest_mann_whitney_p_of_eight_against_eight_values(probe):
    a, b = np.arange(8) + 1.0, np.arange(8) + 9.0
    assert probe("mann_whitney_p", a, b) == pytest.approx(2 / math.comb(16, 8), **CLOSE)


def test_asymptotic_mann_whitney_p_agrees_with_scipy(probe):
    for ties in (False, True):
        for a, b in pairs(rng(), ties):
            expected = stats.mannwhitneyu(b, a, method="asymptotic").pvalue
            expected = 1 if math.isnan(expected) else expected
            assert probe("mann_whitney_asymptotic_p", a, b) == pytest.approx(expected, **CLOSE)


def test_mann_whitney_p_is_asymptotic_for_ties_and_for_many_values(probe):
    random = rng()
    for a, b in [(np.array([1.0, 2, 2]), np.array([2.0, 3, 4, 5])), (random.random(101), random.random(101))]:
        expected = stats.mannwhitneyu(b, a, method="asymptotic").pvalue
        assert probe("mann_whitney_p", a, b) == pytest.approx(expected, **CLOSE)
    assert probe("mann_whitney_p", np.ones(8), np.ones(8)) == 1


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_log_ratio_interval_has_the_shifts_that_the_exact_test_accepts(probe, confidence):
    """The exact test is SciPy's Mann-Whitney test."""
    for a, b in itertools.islice(pairs(rng(), ties=False), 25):
        estimate, (low, high) = probe("log_ratio", a, b, confidence)
        differences = np.sort(np.subtract.outer(np.log(b), np.log(a)).ravel())
        assert estimate == pytest.approx(np.median(differences), **CLOSE)
        between = (differences[1:] + differences[:-1]) / 2
        ends = np.concatenate([[differences[0] - 1], between, [differences[-1] + 1]])
        accepted = [
            s for s in ends
            if stats.mannwhitneyu(np.log(b) - s, np.log(a), method="exact").pvalue > 1 - confidence
        ]  # fmt: skip
        assert (low == -math.inf) == (ends[0] in accepted)
        assert (high == math.inf) == (ends[-1] in accepted)
        if low > -math.inf:
            # The test has the same result everywhere between two neighbouring differences.
            assert low == pytest.approx(differences[differences < min(accepted)].max(), **CLOSE)
            assert high == pytest.approx(differences[differences > max(accepted)].min(), **CLOSE)


def test_signed_rank_p_is_exact_and_agrees_with_scipy(probe):
    """Zeros are left out, and values of equal size share their mean rank. p is the share of all
    combinations of signs that give a statistic at least as extreme."""
    random = rng()
    for n in (1, 2, 5, 8, 12, 24, 50):
        x = random.normal(random.normal(0, 0.5), 1, n)
        assert probe("signed_rank_p", x) == pytest.approx(stats.wilcoxon(x, method="exact").pvalue, **CLOSE)
        assert probe("signed_rank_p", [*x, 0.0]) == probe("signed_rank_p", x)
    assert probe("signed_rank_p", [0.0, 0.0]) == 1
    assert probe("signed_rank_p", np.arange(12) + 1.0) == pytest.approx(2 / 2**12, **CLOSE)
    for n in (3, 6, 9, 11):
        x = random.normal(0.3, 1, n).round(0) + 0.25 * random.integers(0, 2, n)
        x = x[x != 0]
        every = stats.PermutationMethod(n_resamples=np.inf)
        expected = stats.wilcoxon(x, method=every).pvalue
        assert probe("signed_rank_p", x) == pytest.approx(min(1, expected), **CLOSE)


def test_one_sided_signed_rank_p_is_exact_and_agrees_with_scipy(probe):
    """p is the share of all combinations of signs whose sum of positive ranks is as large."""
    random = rng()
    for n in (1, 2, 5, 8, 12, 24, 50):
        x = random.normal(random.normal(0, 0.5), 1, n)
        for differences in (x, -x):
            expected = stats.wilcoxon(differences, alternative="greater", method="exact").pvalue
            assert probe("signed_rank_greater_p", differences) == pytest.approx(expected, **CLOSE)
    assert probe("signed_rank_greater_p", [0.0, 0.0]) == 1
    assert probe("signed_rank_greater_p", [0.0, 1.0, 2.0]) == probe("signed_rank_greater_p", [1.0, 2.0])
    assert probe("signed_rank_greater_p", np.arange(8) + 1.0) == pytest.approx(1 / 256, **CLOSE)
    assert probe("signed_rank_greater_p", -np.arange(8) - 1.0) == pytest.approx(1, **CLOSE)
    for n in (3, 6, 9, 11):  # with ties
        x = random.normal(0.3, 1, n).round(0) + 0.25 * random.integers(0, 2, n)
        x = x[x != 0]
        ranks = stats.rankdata(np.abs(x))
        sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(x))]
        expected = np.mean(np.array(sums) >= ranks[x > 0].sum() - 1e-9)
        assert probe("signed_rank_greater_p", x) == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_paired_log_ratio_interval_has_the_shifts_that_the_exact_test_accepts(probe, confidence):
    """The exact test is SciPy's signed-rank test."""
    random = rng()
    for n in (1, 2, 4, 5, 6, 7, 8, 12, 20):
        x = random.normal(0.1, 0.05, n)
        estimate, (low, high) = probe("paired_log_ratio", x, confidence)
        means = np.sort([(x[i] + x[j]) / 2 for i in range(n) for j in range(i + 1)])
        assert estimate == pytest.approx(np.median(means), **CLOSE)
        ends = np.concatenate([[means[0] - 1], (means[1:] + means[:-1]) / 2, [means[-1] + 1]])
        accepted = [
            s for s in ends if stats.wilcoxon(x - s, method="exact").pvalue > 1 - confidence
        ]
        assert (low == -math.inf) == (ends[0] in accepted)
        assert (high == math.inf) == (ends[-1] in accepted)
        if low > -math.inf:
            assert low == pytest.approx(means[means < min(accepted)].max(), **CLOSE)
            assert high == pytest.approx(means[means > max(accepted)].min(), **CLOSE)


def test_holm_rejects_what_the_step_down_procedure_rejects(probe):
    random = rng()
    for n in (0, 1, 2, 5, 30):
        p = random.random(n) ** 3
        adjusted = probe("holm", p)
        for level in (0.001, 0.01, 0.05, 0.3):
            rejected = set()
            for rank, i in enumerate(np.argsort(p, kind="stable")):
                if p[i] > level / (n - rank):
                    break
                rejected.add(int(i))
            assert {i for i in range(n) if adjusted[i] <= level} == rejected


def test_student_t_agrees_with_scipy(probe):
    random = rng()
    for degrees in (1, 2, 3, 7, 30, 200, 2.5):
        for t in (0, 1e-3, *random.normal(0, 3, 5), 40):
            assert probe("student_t_cdf", t, degrees) == pytest.approx(stats.t.cdf(t, degrees), **CLOSE)
        for p in (0.5, 0.975, 0.995, 1e-6, *random.random(5)):
            expected = stats.t.ppf(p, degrees)
            assert probe("student_t_quantile", p, degrees) == pytest.approx(expected, **CLOSE)


def test_intervals_of_a_mean_agree_with_scipy(probe):
    random = rng()
    for n in (2, 3, 6, 50):
        values = random.normal(3, 2, n)
        for confidence in (0.95, 0.999):
            mean, ends = probe("mean_estimate", values, confidence)
            expected = stats.t.interval(confidence, n - 1, values.mean(), stats.sem(values))
            assert mean == pytest.approx(values.mean(), **CLOSE)
            assert ends == pytest.approx(list(expected), **CLOSE)
    assert probe("mean_estimate", [4.0], 0.95) == [4, [-math.inf, math.inf]]


def test_fitted_lines_agree_with_scipy(probe):
    random = rng()
    for n in (2, 3, 4, 8, 100):
        x, y = random.normal(size=n), random.normal(size=n)
        slope, intercept, error, (low, high) = probe("fit_line", x, y, 0.95)
        expected = stats.linregress(x, y)
        assert slope == pytest.approx(expected.slope, **CLOSE)
        assert intercept == pytest.approx(expected.intercept, **CLOSE)
        if n == 2:
            assert error == math.inf and low == -math.inf and high == math.inf
            continue
        reach = stats.t.ppf(0.975, n - 2) * expected.stderr
        assert error == pytest.approx(expected.stderr, **CLOSE)
        assert [low, high] == pytest.approx([expected.slope - reach, expected.slope + reach], **CLOSE)


def test_first_crossing_is_where_the_interpolated_points_change_sign(probe):
    """The expected position is found by SciPy, by interpolation and a search for a root."""
    from scipy.interpolate import interp1d
    from scipy.optimize import brentq

    def first_zero(x, y):
        for i in range(len(x) - 1):
            if y[i] * y[i + 1] < 0:
                return brentq(interp1d(x, y), x[i], x[i + 1], xtol=1e-14), bool(y[i + 1] > 0)
        return None

    random, seen = rng(), 0
    for _ in range(100):
        n = int(random.integers(2, 9))
        x = np.sort(random.normal(size=n))
        y, reach = random.normal(size=n), random.random(n) / 2
        found = probe("first_crossing", x, y, np.stack([y - reach, y + reach], axis=1))
        expected = first_zero(x, y)
        assert (found is None) == (expected is None)
        if found is None:
            continue
        seen += 1
        at, (low, high), rises = found
        assert at == pytest.approx(expected[0], **CLOSE) and rises == expected[1]
        assert low <= at <= high
        early = first_zero(x, y + reach if rises else y - reach)
        if early and early[1] == rises:
            assert low == pytest.approx(min(at, early[0]), **CLOSE)
        else:
            assert low == -math.inf
    assert seen > 30
