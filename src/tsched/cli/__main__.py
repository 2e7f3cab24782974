"""`python -m tsched.cli`: the command line without an installation."""

from tsched.cli import main

if __name__ == "__main__":
    main(prog_name="tsched")
