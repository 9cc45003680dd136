"""`python -m netlab` is the `netlab` command."""

from netlab.cli import main

if __name__ == "__main__":
    main()
