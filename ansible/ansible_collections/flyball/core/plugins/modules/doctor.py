#!/usr/bin/python
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: Check whether a node is set up well
description:
  - Runs the checks of C(flyball doctor). Nothing is written.
options:
  fail_on:
    description: The verdict from which the task fails.
    type: str
    choices: [fault, warning, never]
    default: fault
  only:
    description: Only checks whose names start with one of these, such as V(driver) or V(conflict.epb-epp).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - action_common_attributes
  - flyball.core.flyball
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Nothing contradicts the profile
  flyball.core.doctor:
    fail_on: warning
    only: [driver, conflict]
"""

RETURN = r"""
findings:
  description: Warnings and faults first; each with C(id), C(verdict), C(what), C(evidence) and C(fix).
  returned: when examined
  type: list
  elements: dict
worst:
  description: The worst verdict.
  returned: when examined
  type: str
exit_code:
  description: The program's exit code; 8 is a warning, 9 a fault.
  returned: always
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.flyball.core.plugins.module_utils.flyball import COMMON, Program

VERDICTS = ["ok", "unknown", "note", "warning", "fault"]


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            fail_on=dict(type="str", choices=["fault", "warning", "never"], default="fault"),
            only=dict(type="list", elements="str", default=[]),
        ),
        supports_check_mode=True,
    )
    only = [word for check in module.params["only"] for word in ("--only", check)]
    code, data, err = Program(module).run(["doctor"] + only, results=(0, 8, 9))
    findings = sorted(data["findings"], key=lambda finding: -VERDICTS.index(finding["verdict"]))
    worst = findings[0]["verdict"] if findings else "ok"
    result = dict(changed=False, exit_code=code, findings=findings, worst=worst)
    limit = module.params["fail_on"]
    if limit != "never":
        bad = [finding for finding in findings if VERDICTS.index(finding["verdict"]) >= VERDICTS.index(limit)]
        if bad:
            module.fail_json(msg="; ".join("%(id)s: %(what)s" % finding for finding in bad), error=worst, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
