# Options of every module of the collection.
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  binary:
    description: The program on the node, by its path or its name in PATH.
    type: str
    default: flyball
  machine:
    description: The machine, as the option C(-M) of flyball names it. V(sim:NAME) is a simulated one, for rehearsals and tests.
    type: str
    default: live
  state:
    description: Directory on the node in which a simulated machine keeps its state from one task to the next.
    type: path
  lock_timeout:
    description: Seconds to wait while another flyball holds the machine (exit code 6).
    type: float
    default: 10
  missing:
    description: What to do on a machine that does not have what is asked for (exit code 4).
    type: str
    choices: [fail, skip]
    default: fail
attributes:
  platform:
    description: The systems of the nodes.
    support: full
    platforms: linux
notes:
  - The program's exit codes become results one to one. 0 is success. 7 is success with RV(ignore:clamped), or a failure.
    1, 2, 3, 4, 6 are failures with O(ignore:error) V(failed), V(not_accepted), V(left_changed), V(not_here), V(held).
requirements:
  - flyball on the node
author:
  - The flyball project (@flyball)
"""
