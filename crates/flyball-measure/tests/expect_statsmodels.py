"""Numbers of statsmodels for tests/statsmodels.json: run in a virtual environment with statsmodels, print to that file.

    python3 -m venv VENV && VENV/bin/pip install statsmodels && VENV/bin/python tests/expect_statsmodels.py > tests/statsmodels.json
"""
import json

import numpy
import statsmodels
from statsmodels.stats import meta_analysis


def main():
    random = numpy.random.default_rng(7)
    cases = []
    for machines, between in [(2, 0.0), (3, 0.01), (5, 0.0), (12, 0.02), (40, 0.005), (200, 0.01)]:
        errors = random.uniform(0.002, 0.02, machines)
        values = -0.05 + between * random.standard_normal(machines) + errors * random.standard_normal(machines)
        # Their own loop ends at a tolerance of 1e-5.
        found, _ = meta_analysis._fit_tau_iterative(values, errors**2, tau2_start=0, atol=1e-15, maxiter=500)
        tau2 = max(found, 0.0)
        combined = meta_analysis.combine_effects(
            values, errors**2, method_re="iterated", use_t=True, atol=1e-15, maxiter=500
        )
        low, high = combined.conf_int(use_t=True)[3]
        cases.append({
            "values": values.tolist(), "errors": errors.tolist(), "between": float(numpy.sqrt(tau2)),
            "mean": float(combined.mean_effect_re), "error": float(combined.sd_eff_w_re_hksj),
            "low": float(low), "high": float(high), "i2": max(float(combined.i2), 0.0),
        })
    print(json.dumps({"statsmodels": statsmodels.__version__, "pooled": cases}, indent=1))


if __name__ == "__main__":
    main()
