"""Lets models of transformers and flash-linear-attention compute with our operators on CPUs.

    import attnbench

    with attnbench.accelerate():
        model.generate(…)
    print(attnbench.accelerate.report())

docs/models.md has the table of what is replaced, and what is not.
"""

from attnbench.acceleration._activation import Acceleration, accelerate, report
from attnbench.acceleration._counters import Report
from attnbench.acceleration._transformers import SignatureError

__all__ = ["Acceleration", "Report", "SignatureError", "accelerate", "report"]
