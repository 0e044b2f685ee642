#!/usr/bin/env python3
"""Writes SciPy's values of the gate's statistics to tests/fixtures/stats_scipy.json, for
tests/unit/reports/stats/test_stats.c.

Needs numpy and scipy; the program and its tests need neither.
Usage: peer_stats.py > tests/fixtures/stats_scipy.json
"""
import json
import sys

import numpy as np
import scipy
from scipy import integrate, stats

rng = np.random.default_rng(20261121)


def walsh(d):
    i, j = np.triu_indices(len(d))
    return np.sort((d[i] + d[j]) / 2)


def signed_rank_cdf(n):
    counts = np.array([1], dtype=object)  # exact integers
    for rank in range(1, n + 1):
        counts = np.concatenate([counts, np.zeros(rank, dtype=object)]) + np.concatenate(
            [np.zeros(rank, dtype=object), counts])
    return np.cumsum(counts), 2**n


def critical(cdf, total, alpha):
    k = -1
    while k + 1 < len(cdf) and cdf[k + 1] <= alpha * total * (1 + 1e-12):
        k += 1
    return k


def paired_case(n, shift, alpha, guard):
    base = rng.lognormal(0, 0.1, n)
    other = base * np.exp(rng.normal(shift, 0.03, n))
    d = np.log(other / base)
    w, (cdf, total) = walsh(d), signed_rank_cdf(n)
    k = critical(cdf, total, alpha)
    method = "exact"
    p = lambda x, side: stats.wilcoxon(x, alternative=side, method=method).pvalue
    return {"base": list(base), "other": list(other), "alpha": alpha, "guard": guard,
            "ratio": float(np.exp(np.median(w))),
            "low": float(np.exp(w[k])) if k >= 0 else None,
            "high": float(np.exp(w[-1 - k])) if k >= 0 else None,
            "p_above": p(d - np.log1p(guard), "greater"), "p_below": p(d + np.log1p(guard), "less")}


def unpaired_case(m, n, shift, alpha, guard):
    base, other = rng.lognormal(0, 0.05, m), rng.lognormal(shift, 0.05, n)
    quotients = np.sort(np.subtract.outer(np.log(other), np.log(base)).ravel())
    p = lambda by, side: stats.mannwhitneyu(other * by, base, alternative=side, method="exact").pvalue
    # the largest k with P(U <= k) <= alpha, from SciPy's own p-values of data whose U is k
    k = -1
    for u in range(m * n):
        if stats.mannwhitneyu(*with_u(m, n, u), alternative="less",
                              method="exact").pvalue > alpha * (1 + 1e-12):
            break
        k = u
    return {"base": list(base), "other": list(other), "alpha": alpha, "guard": guard,
            "ratio": float(np.exp(np.median(quotients))),
            "low": float(np.exp(quotients[k])) if k >= 0 else None,
            "high": float(np.exp(quotients[-1 - k])) if k >= 0 else None,
            "p_above": p(1 / (1 + guard), "greater"), "p_below": p(1 + guard, "less")}


def with_u(m, n, u):
    """Two samples whose U statistic (of the first against the second) is u."""
    ranks, first = list(range(m)), []
    for i in reversed(range(m)):
        move = min(n, u)
        u -= move
        first.append(ranks[i] + move)
    first = set(first)
    return sorted(first), [r for r in range(m + n) if r not in first]


def tost_case(n, mean, sd, margin, alpha):
    x = rng.normal(mean, sd, n)
    low = stats.ttest_1samp(x, -margin, alternative="greater")
    high = stats.ttest_1samp(x, margin, alternative="less")
    ci = stats.ttest_1samp(x, 0).confidence_interval(1 - 2 * alpha)
    s, df = np.std(x, ddof=1), n - 1
    t, e = stats.t.ppf(1 - alpha, df), s / np.sqrt(n)
    power = integrate.quad(lambda v: stats.chi(df).pdf(v * np.sqrt(df)) * np.sqrt(df) *
                           max(0, 2 * stats.norm.cdf((margin - t * e * v) / e) - 1), 0, margin / (t * e),
                           points=[1] if margin / (t * e) > 1 else None, limit=400)[0]
    return {"difference": list(x), "margin": margin, "alpha": alpha, "p": max(low.pvalue, high.pvalue),
            "low": ci.low, "high": ci.high, "power": power}


def clopper(k, n, confidence):
    side = (1 - confidence) / 2  # by the beta distribution: binomtest's own interval is accurate to 1e-9 only
    return {"k": k, "n": n, "confidence": confidence,
            "low": 0.0 if k == 0 else stats.beta.ppf(side, k, n - k + 1),
            "high": 1.0 if k == n else stats.beta.isf(side, k + 1, n - k)}


def holm(p):
    order, out, worst = np.argsort(p), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, p[i] * (len(p) - rank)))
        out[i] = worst
    return {"p": list(p), "adjusted": out}


def classes_case(part, everything):
    """Classes of a part against those of the rest; classes with under 5 expected are pooled."""
    counts = sorted((a, p) for p, a in zip(part, everything) if a > 0)
    share = sum(part) / sum(everything)
    while len(counts) > 2 and counts[0][0] * share < 5:
        counts = [(counts[0][0] + counts[1][0], counts[0][1] + counts[1][1])] + counts[2:]
    if len(counts) == 2 and counts[0][0] * share < 5 and len([a for a in everything if a > 0]) > 2:
        counts = [(counts[0][0] + counts[1][0], counts[0][1] + counts[1][1])]
    table = [[p for a, p in counts], [a - p for a, p in counts]]
    p = (None if len(counts) < 2 else stats.fisher_exact(table)[1] if len(counts) == 2
         else stats.chi2_contingency(table, correction=False)[1])
    return {"part": list(part), "all": list(everything), "p": p}


document = {
    "scipy": scipy.__version__,
    "paired": [paired_case(n, shift, alpha, guard) for n, shift, alpha, guard in
               [(5, 0.02, 0.05, 0), (7, 0.05, 0.01, 0.01), (12, 0.0, 0.02, 0.01), (12, 0.05, 0.02, 0.01),
                (20, 0.03, 0.02, 0.01), (30, 0.01, 0.01, 0.01), (30, -0.06, 0.01, 0.01),
                (49, 0.02, 0.05, 0.02),
                (3, 0.1, 0.05, 0)]],
    "unpaired": [unpaired_case(m, n, shift, alpha, guard) for m, n, shift, alpha, guard in
                 [(3, 3, 0.2, 0.05, 0), (5, 8, 0.1, 0.05, 0.01), (12, 12, 0.05, 0.01, 0.02),
                  (20, 7, -0.1, 0.05, 0)]],
    "tost": [tost_case(*c) for c in [(5, 0.0, 0.01, 0.03, 0.05), (5, 0.02, 0.02, 0.03, 0.05),
                                     (8, 0.0, 0.5, 0.3, 0.05),
                                     (2, 0.0, 0.01, 0.1, 0.05), (30, 0.01, 0.05, 0.03, 0.01)]],
    "clopper_pearson": [clopper(*c) for c in [(0, 300, 0.95), (3, 300, 0.95), (300, 300, 0.95), (7, 20, 0.9),
                                              (1, 1, 0.95), (950, 1000, 0.99), (1, 3000, 0.95)]],
    "student": [{"df": df, "t": t, "tail": stats.t.sf(t, df)} for df in (1, 2, 3, 4, 5, 9, 10, 29, 100, 101)
                for t in (-1.5, 0.0, 0.3, 1.0, 2.5, 12.0)],
    "student_point": [{"df": df, "alpha": a, "t": stats.t.isf(a, df)} for df in (1, 2, 4, 9, 30)
                      for a in (0.05, 0.025, 0.001)],
    "normal_point": [{"alpha": a, "z": stats.norm.isf(a)}
                     for a in (0.5, 0.1, 0.05, 0.02, 0.01, 0.00125, 0.9)],
    "holm": [holm(rng.uniform(0, 0.1, n)) for n in (1, 4, 40)],
    "chi_squared": [{"df": df, "x": x, "tail": stats.chi2.sf(x, df)} for df in (1, 2, 3, 9, 10, 63)
                    for x in (1e-3, 0.5, 3.0, 9.5, 40.0, 150.0)],
    "classes": [classes_case(*c) for c in [
        ([12, 20], [300, 260]), ([0, 20], [40, 260]), ([3, 1], [4, 4]), ([5, 5], [10, 10]),
        ([30, 2], [900, 800]),
        ([20, 22, 22], [1000, 1010, 990]), ([60, 2, 2], [1000, 1010, 990]),
        ([7, 6, 6, 7, 6, 6, 7, 6, 6, 7], [100] * 10),
        ([64, 0, 0, 0, 0, 0, 0, 0, 0, 0], [600] * 10),
        ([50, 40, 3, 2, 1, 0, 1], [5000, 4000, 200, 200, 90, 90, 80]),
        ([30, 0, 2], [900, 0, 90]), ([2, 1, 1, 0], [10, 10, 10, 10]), ([0, 0, 5], [0, 0, 50])]],
}
json.dump(document, sys.stdout, indent=1)
sys.stdout.write("\n")
