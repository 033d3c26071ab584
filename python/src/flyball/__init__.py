"""CPU performance settings on Linux from Python, over the `flyball` program.

>>> import flyball
>>> machine = flyball.Machine("sim:hybrid-laptop")
>>> machine.apply({"turbo": False}).made[0]["value"]
'off'
>>> machine.get("turbo").columns()["value"]
[False]
>>> machine.verify({"turbo": True}).holds
False
"""

from .errors import Clamped, ClampedWarning, Error, Failed, Held, LeftChanged, NotAccepted, NotHere
from .machine import Applied, Examination, Machine, Plan, Settings, Show, Verification
from .process import program
from .runs import NotARun, Run, Runs, read_run, read_runs
from .tables import Table
from .trace import read_trace

__all__ = [
    "Applied",
    "Clamped",
    "ClampedWarning",
    "Error",
    "Examination",
    "Failed",
    "Held",
    "LeftChanged",
    "Machine",
    "NotARun",
    "NotAccepted",
    "NotHere",
    "Plan",
    "Run",
    "Runs",
    "Settings",
    "Show",
    "Table",
    "Verification",
    "program",
    "read_run",
    "read_runs",
    "read_trace",
]
