"""Tools for those who test schedulers, policies and backends, ours or their own."""

from tsched.testing.play import Played, play, play_programs
from tsched.testing.virtual_loop import VirtualLoop, run_virtual

__all__ = ["Played", "VirtualLoop", "play", "play_programs", "run_virtual"]
