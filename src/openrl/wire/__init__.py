"""The wire: every message that clients send and read, and how it becomes work and how results become answers.

Messages are JSON (the modules by topic) or protobuf (`tinker_public.proto`). `decode` and its neighbours `batches`,
`samples` and `steps` make work of requests; `encode` makes answers of results; `body` undoes compression. It never
looks anything up: whether a model or a checkpoint exists is not its business.
"""
