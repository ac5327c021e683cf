"""`python -m maillard`."""

from maillard.cli import main

main()
