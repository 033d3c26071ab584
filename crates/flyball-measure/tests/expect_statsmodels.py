"""Numbers of statsmodels for tests/statsmodels.json: run in a virtual environment with statsmodels, print to that file.

    python3 -m venv VENV && VENV/bin/pip install statsmodels && VENV/bin/python tests/expect_statsmodels.py > tests/statsmodels.json
"""
import json

import numpy
import scipy.stats
import statsmodels.api
from statsmodels.stats import meta_analysis


def main():
    random = numpy.random.default_rng(7)
    cases = []
    for machines, between in [(2, 0.0), (3, 0.01), (5, 0.0), (12, 0.02), (40, 0.005), (200, 0.01)]:
        errors = random.uniform(0.002, 0.02, machines)
        values = -0.05 + between * random.standard_normal(machines) + errors * random.standard_normal(machines)
        # Their loop gives up with 0 once rounding takes it below the root, so the smallest tolerance that it reaches is taken.
        for digits in range(13, 4, -1):
            settings = {"atol": 10.0**-digits, "maxiter": 500}
            tau2, converged = meta_analysis._fit_tau_iterative(values, errors**2, tau2_start=0, **settings)
            if converged:
                break
        combined = meta_analysis.combine_effects(values, errors**2, method_re="iterated", use_t=True, **settings)
        # The larger one of Hartung and Knapp's standard error and that of the residuals.
        weighted = statsmodels.api.WLS(values, numpy.ones(machines), weights=1 / (errors**2 + tau2))
        residuals = weighted.fit(cov_type="HC2", use_t=True)
        low, high = combined.conf_int(use_t=True)[3]
        if residuals.bse[0] > combined.sd_eff_w_re_hksj:
            low, high = residuals.conf_int(0.05)[0]
        error = float(max(combined.sd_eff_w_re_hksj, residuals.bse[0]))
        # Of few machines without a difference, at least that of their rounds.
        if machines <= 4 and tau2 == 0 and combined.sd_eff_w_fe > error:
            error = float(combined.sd_eff_w_fe)
            low, high = scipy.stats.t.interval(0.95, machines - 1, combined.mean_effect_re, error)
        cases.append({
            "values": values.tolist(), "errors": errors.tolist(), "between": float(numpy.sqrt(tau2)),
            "mean": float(combined.mean_effect_re), "error": error,
            "low": float(low), "high": float(high), "i2": max(float(combined.i2), 0.0),
        })
    print(json.dumps({"statsmodels": statsmodels.__version__, "pooled": cases}, indent=1))


if __name__ == "__main__":
    main()
