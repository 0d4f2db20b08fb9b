"""The second flow of faults/engine_shop.py, as a file for `penstock run`."""

from faults.engine_shop import report

flow = report()
