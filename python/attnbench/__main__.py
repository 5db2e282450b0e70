"""`python -m attnbench` is the console script `attnbench`."""

from attnbench._program import main

main()
