"""A fine-tuning service that speaks Tinker's protocol, self-hosted: the SDK's training loops run against it unchanged.

`openrl serve` starts it. `app` and `routes` take requests, `service` keeps them in order and loses none, `torch_worker`
does the work. It uses what tsched shows in public, and nothing inside that package.
"""
