"""The HTTP interface under /api/v1, one module a topic. A route reads its request, asks the service, and answers.

A request that the service would number (`seq_id`) and that makes no sense still takes its number: its future fails.
Otherwise all later requests of that model would wait for one that never comes.
"""
