"""Measuring: timing, cold processes, evidence under the profiler, the ledger of saved tensors, gradients."""
