"""`python -m pgq_sql` is the command `pgq`."""

from .cli import main

main()
