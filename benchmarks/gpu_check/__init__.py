"""What needs a GPU to be checked: parks of real models and processes, taking turns, and the probes, with figures.

    python -m benchmarks.gpu_check [--json]

Each step runs in a process of its own and within a time limit, so that one which fails, hangs or crashes leaves the
others alone. Nothing here is needed to use tsched.
"""
