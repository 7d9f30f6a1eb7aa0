"""What measured numbers mean: statistics, kernel differences, comparisons, answers and findings.

Pure functions over :mod:`retainprof.records`: no torch, no file, no clock.
"""

from retainprof.analysis.complete import complete

__all__ = ["complete"]
