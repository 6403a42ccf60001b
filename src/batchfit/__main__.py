"""`python -m batchfit`: the command line."""

from batchfit.cli import main

main()
