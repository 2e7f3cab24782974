"""The protocol `tsched.v1`: `worker.proto` is its text, `worker_pb2` made of it by `python -m tsched.rpc.generate`."""
