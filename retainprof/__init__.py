"""What several backward calls over one autograd graph cost: kernels, bytes and honest intervals."""

from retainprof._version import __version__

__all__ = ["__version__"]
