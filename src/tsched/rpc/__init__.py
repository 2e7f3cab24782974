"""The worker channel: how worker processes talk to the scheduler, over gRPC.

`hub` is the scheduler's side, `worker` the process's; `v1` is the protocol. Nothing here decides anything.
"""

import os

# gRPC's fork handlers can do nothing for a process that has a stream open, but they complain at each fork of it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
