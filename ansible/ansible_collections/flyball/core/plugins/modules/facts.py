#!/usr/bin/python
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
module: facts
short_description: What a node's processors are and how they are set, as facts
description:
  - Reads with C(flyball show) and returns RV(ansible_facts) with C(flyball). Nothing is written.
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
- name: Read
  flyball.core.facts:

- name: Only where there is turbo
  ansible.builtin.debug:
    msg: "turbo is {{ ansible_facts.flyball.knobs.turbo }}"
  when: "'turbo' in ansible_facts.flyball.knobs"
"""

RETURN = r"""
ansible_facts:
  description:
    - C(flyball.machine) is the machine (model, microcode, kernel, CPUs by package, type and node).
    - C(flyball.knobs) has for each knob that is there its values by CPU list.
    - C(flyball.absent) has the reasons for those that are not.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.flyball.core.plugins.module_utils.flyball import COMMON, Program


def facts(data):
    knobs, absent = {}, {}
    for row in data["rows"]:
        name = ":".join([row["knob"], row["instance"]]) if row.get("instance") else row["knob"]
        if row["value"] is None:
            absent[name] = row.get("absent", row.get("error", ""))
        else:
            knobs.setdefault(name, {})[row["cpus"]] = row["value"]
    return dict(machine=data["machine"], knobs=knobs, absent=absent)


def main():
    module = AnsibleModule(argument_spec=dict(COMMON), supports_check_mode=True)
    code, data, err = Program(module).run(["show"])
    module.exit_json(changed=False, exit_code=code, ansible_facts=dict(flyball=facts(data)))


if __name__ == "__main__":
    main()
