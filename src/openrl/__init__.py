"""The Tinker-compatible fine-tuning service, to be built on tsched's public interface.

Nothing is here yet. It will use `tsched.Scheduler` or tsched's client, and nothing inside that package.
"""
