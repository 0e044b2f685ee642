#!/usr/bin/env python3
"""Writes SciPy's fits of extreme-value distributions to tests/fixtures/extremes_scipy.json, for
tests/unit/reports/advise/test_extremes.c.

Maximum likelihood: SciPy's general minimiser on its own densities and survival functions. L-moments:
scipy.stats.lmoment. Needs numpy and scipy 1.15 or later; the program and its tests need neither.
Usage: peer_extremes.py > tests/fixtures/extremes_scipy.json"""
import json
import sys

import numpy as np
import scipy
from scipy import optimize, stats

rng = np.random.default_rng(20261121)


def likeliest(law, x, cut, start):
    """Maximum-likelihood location or shape and log scale, of exact and right-censored values."""
    def loss(p):
        dist = law(p[0], np.exp(p[1]))
        total = dist.logpdf(x[~cut]).sum() + dist.logsf(x[cut]).sum()
        return -total if np.isfinite(total) else 1e100
    best = None
    for shift in (0.0, 0.3, -0.2):
        found = optimize.minimize(loss, [start[0] + shift, start[1]], method="Nelder-Mead",
                                  options={"xatol": 1e-11, "fatol": 1e-13, "maxiter": 20000, "maxfev": 20000})
        found = optimize.minimize(loss, found.x, method="Nelder-Mead",
                                  options={"xatol": 1e-12, "fatol": 1e-14, "maxiter": 20000})
        if best is None or found.fun < best.fun:
            best = found
    return float(best.x[0]), float(np.exp(best.x[1]))


def case(draw, n, limit):
    value = draw(n)
    cut = value >= limit
    value = np.minimum(value, limit)
    if limit == np.inf:
        cut[:] = False
    normal = likeliest(lambda a, b: stats.norm(a, b), value, cut, [value.mean(), np.log(value.std())])
    gumbel_ml = likeliest(lambda a, b: stats.gumbel_r(a, b), value, cut, [value.mean(), np.log(value.std())])
    l1, l2 = stats.lmoment(value, order=[1, 2])
    beta = l2 / np.log(2)
    at = float(np.quantile(value, 0.9))
    return {"value": list(value), "censored": [bool(c) for c in cut],
            "normal": normal, "gumbel_ml": gumbel_ml,
            "gumbel_moments": [float(l1 - np.euler_gamma * beta), float(beta)],
            "x": at, "normal_exceeds": float(stats.norm(*normal).sf(at)),
            "gumbel_exceeds": float(stats.gumbel_r(*gumbel_ml).sf(at))}


def peaks(shape, n, limit):
    excess = stats.genpareto(shape, scale=0.7).rvs(n, random_state=rng)
    cut = excess >= limit
    excess = np.minimum(excess, limit)
    found = likeliest(lambda a, b: stats.genpareto(a, scale=b), excess, cut, [shape, np.log(0.7)])
    at = float(np.quantile(excess, 0.95)) * 1.3
    return {"excess": list(excess), "censored": [bool(c) for c in cut], "shape": found[0], "scale": found[1],
            "x": at, "exceeds": float(stats.genpareto(found[0], scale=found[1]).sf(at))}


document = {
    "scipy": scipy.__version__,
    "values": [case(lambda n: rng.normal(-4, 0.7, n), 60, np.inf),
               case(lambda n: rng.normal(-4, 0.7, n), 80, -3.6),
               case(lambda n: rng.gumbel(2, 0.5, n), 64, np.inf),
               case(lambda n: rng.gumbel(2, 0.5, n), 128, 2.9),
               case(lambda n: rng.gumbel(-9, 1.5, n), 30, -8.0),
               case(lambda n: rng.standard_t(3, n), 100, 1.5)],
    "peaks": [peaks(0.4, 40, np.inf), peaks(0.0, 60, np.inf), peaks(-0.2, 80, np.inf), peaks(0.2, 60, 1.5),
              peaks(0.6, 100, 2.5), peaks(0.1, 12, np.inf)],
}
json.dump(document, sys.stdout, indent=1)
sys.stdout.write("\n")
