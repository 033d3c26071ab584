# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
name: types
short_description: Groups hosts by what their processors are
description:
  - Hosts with the same model, microcode, kernel release and number of CPUs are of one type. A host without facts has no type.
positional: _input
options:
  _input:
    description: Each host's facts, as M(flyball.core.facts) returns them under C(flyball), by host name.
    type: dict
    required: true
author:
  - The flyball project (@flyball)
"""

EXAMPLES = r"""
- name: One host of each type
  ansible.builtin.debug:
    msg: "{{ facts_by_host | flyball.core.types | map(attribute='hosts') | map('first') }}"
"""

RETURN = r"""
_value:
  description: A dictionary for each type with C(model), C(microcode), C(kernel), C(cpus) and C(hosts), those with most hosts first.
  type: list
  elements: dict
"""


def types(facts_by_host):
    groups = {}
    for host in sorted(facts_by_host):
        machine = (facts_by_host[host] or {}).get("machine")
        if machine:
            key = tuple(machine.get(name) for name in ("model_name", "microcode", "kernel", "present"))
            groups.setdefault(key, []).append(host)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
    return [dict(model=key[0], microcode=key[1], kernel=key[2], cpus=key[3], hosts=hosts) for key, hosts in ordered]


class FilterModule:
    def filters(self):
        return dict(types=types)
