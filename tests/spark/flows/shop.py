"""The flow of faults/engine_shop.py, as a file for `penstock run`."""

from faults.engine_shop import shop

flow = shop()
