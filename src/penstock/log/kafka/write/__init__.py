"""Frames into partitions, in transactions; what a killed broker left open is ended first."""
