"""What an operator asks before and beside a run: `doctor` looks at this machine and a prefix, `preflight` tries from
every worker of a fleet what a run will need.
"""

from marin.operate.doctor import doctor
from marin.operate.findings import Finding, Level, render, worst
from marin.operate.preflight import Flight, passed, preflight

__all__ = ["Finding", "Flight", "Level", "doctor", "passed", "preflight", "render", "worst"]
