"""The orchestrator: one scheduler, served over gRPC to jobs, operators and agents.

`server.serve` runs it. Turns are decided by the scheduler alone; here is who may ask, in which protocol, and what is
seen from outside.
"""
