"""`python -m netlab` is the `netlab` command."""

from netlab.cli import main

main()
