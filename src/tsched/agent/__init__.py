"""The node agent: has states moved on its host for an orchestrator elsewhere, and says what has become of them.

It decides nothing about turns, and moves nothing that neither registered here nor is attributed to a job by the host.
"""
