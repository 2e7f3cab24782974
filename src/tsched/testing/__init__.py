"""Tools for those who test schedulers, policies and backends, ours or their own."""

from tsched.testing.virtual_loop import VirtualLoop, run_virtual

__all__ = ["VirtualLoop", "run_virtual"]
