"""`python -m openrl.cli`."""

from openrl.cli import main

main()
