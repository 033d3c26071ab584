#!/usr/bin/python
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
module: verify
short_description: Check whether settings still hold, and which program may have changed them
description:
  - Compares a profile and settings with the node. Nothing is written, with or without check mode.
options:
  profile:
    description: A profile, by the name that C(flyball profiles) lists or by its path on the node.
    type: str
  settings:
    description: Knobs with their values. They win over O(profile).
    type: dict
    default: {}
  cpus:
    description: The CPUs of settings that do not name their own.
    type: str
  report_only:
    description: Whether to return what drifted and not to fail.
    type: bool
    default: false
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
- name: The profile still holds
  flyball.core.verify:
    profile: latency
"""

RETURN = r"""
holds:
  description: Whether every setting holds.
  returned: when compared
  type: bool
drifted:
  description: The settings that do not hold, with what is there (C(was)) and what should be (C(value)).
  returned: when compared
  type: list
  elements: dict
owners:
  description: Programs that run on the node and write these knobs.
  returned: when compared
  type: list
  elements: dict
held_by:
  description: Holds that keep these knobs at another value.
  returned: when compared
  type: list
  elements: dict
exit_code:
  description: The program's exit code.
  returned: always
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.flyball.core.plugins.module_utils.flyball import COMMON, SETTINGS, Program, drifted


def main():
    module = AnsibleModule(
        argument_spec=dict(COMMON, report_only=dict(type="bool", default=False), **SETTINGS),
        required_one_of=[("profile", "settings")],
        supports_check_mode=True,
    )
    program = Program(module)
    code, data, err = program.run(["verify"] + program.settings(), results=(0, 5))
    result = dict(changed=False, exit_code=code, holds=code == 0)
    result.update({key: data[key] for key in ("drifted", "owners", "held_by", "notes") if key in data})
    if code == 5 and not module.params["report_only"]:
        places = drifted(data["drifted"])
        holds = ["the hold %s sets %s to %s" % (row["hold"], row["knob"], row["value"]) for row in data.get("held_by", [])]
        owners = ["%s runs and writes %s" % (owner["name"], ", ".join(owner["writes"])) for owner in data["owners"]]
        more = ["and %d more" % (len(places) - 5)] if len(places) > 5 else []
        module.fail_json(msg="; ".join(places[:5] + more + holds + owners), error="drifted", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
