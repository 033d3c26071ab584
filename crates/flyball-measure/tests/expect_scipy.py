"""Numbers of SciPy for tests/scipy.json: run in a virtual environment with SciPy, print to that file.

    python3 -m venv VENV && VENV/bin/pip install scipy && VENV/bin/python tests/expect_scipy.py > tests/scipy.json

The series are made by a generator of our own (a linear congruential one), so that the file holds all that is needed.
"""
import json

import numpy
import scipy
from scipy import stats


def series(seed, count, centre, spread):
    out, state = [], seed
    for _ in range(count):
        total = 0.0
        for _ in range(12):
            state = (state * 1664525 + 1013904223) % 2**32
            total += state / 2**32
        out.append(centre + spread * (total - 6.0))
    return out


def main():
    paired, unpaired, trends, quantiles = [], [], [], []
    for seed, count, centre in [(1, 6, 0.5), (2, 10, 0.4), (3, 15, 0.0), (4, 30, 0.2), (5, 50, 0.1)]:
        d = series(seed, count, centre, 1.0)
        test = stats.wilcoxon(d, method="exact")
        walsh = [(a + b) / 2 for i, a in enumerate(d) for b in d[i:]]
        paired.append({"values": d, "p": test.pvalue, "hodges_lehmann": float(numpy.median(walsh))})
    # With ties the exact distribution is that of all sign flips.
    for d in [[1, 1, 2, -1, 3, 2, 2, -2], [0.5, 0.5, 0.5, 0.5, -0.5, 1, 1.5]]:
        test = stats.wilcoxon(d, method=stats.PermutationMethod(n_resamples=numpy.inf))
        walsh = [(a + b) / 2 for i, a in enumerate(d) for b in d[i:]]
        paired.append({"values": [float(x) for x in d], "p": test.pvalue, "hodges_lehmann": float(numpy.median(walsh))})
    for seed, m, n, centre in [(11, 3, 3, 2.0), (12, 8, 9, 0.8), (13, 20, 20, 0.3), (14, 30, 40, 0.2), (15, 60, 70, 0.2)]:
        a, b = series(seed, m, 10.0, 1.0), series(seed + 100, n, 10.0 + centre, 1.5)
        method = "exact" if m + n <= 80 else "asymptotic"
        unpaired.append({
            "a": a, "b": b, "rank_sum": stats.mannwhitneyu(a, b, method=method).pvalue,
            "welch": stats.ttest_ind(a, b, equal_var=False).pvalue,
            "shift": float(numpy.median([y - x for x in a for y in b])),
            "delta": float(numpy.mean([(y > x) * 1.0 - (y < x) for x in a for y in b])),
        })
    tied = ([1.0, 2, 2, 3, 3, 3], [2.0, 3, 4, 4, 5])
    test = stats.mannwhitneyu(*tied, method=stats.PermutationMethod(n_resamples=numpy.inf))
    unpaired.append({
        "a": tied[0], "b": tied[1], "rank_sum": test.pvalue,
        "welch": stats.ttest_ind(*tied, equal_var=False).pvalue,
        "shift": float(numpy.median([y - x for x in tied[0] for y in tied[1]])),
        "delta": float(numpy.mean([(y > x) * 1.0 - (y < x) for x in tied[0] for y in tied[1]])),
    })
    for seed, count, slope in [(21, 8, 0.3), (22, 12, 0.0), (23, 25, 0.05), (24, 60, 0.01)]:
        y = [v + slope * i for i, v in enumerate(series(seed, count, 5.0, 1.0))]
        x = list(range(count))
        # Kendall's tau against time is the Mann-Kendall test.
        trends.append({
            "values": y, "slope": stats.theilslopes(y, x).slope,
            "exact": stats.kendalltau(x, y, method="exact").pvalue if count <= 30 else None,
            "tau": stats.kendalltau(x, y).statistic,
        })
    for seed, count in [(31, 12), (32, 25)]:
        v = series(seed, count, 100.0, 5.0)
        quantiles.append({
            "values": v,
            "quartiles": [float(x) for x in numpy.quantile(v, [0.1, 0.25, 0.5, 0.75, 0.9])],
            "deviation": float(numpy.std(v, ddof=1)),
        })
    print(json.dumps({
        "scipy": scipy.__version__, "paired": paired, "unpaired": unpaired, "trends": trends, "quantiles": quantiles,
    }, indent=1))


main()
