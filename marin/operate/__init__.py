"""What an operator asks before and beside a run; `doctor` looks at this machine and a prefix."""

from marin.operate.doctor import doctor
from marin.operate.findings import Finding, Level, render, worst

__all__ = ["Finding", "Level", "doctor", "render", "worst"]
