"""Pytest fixtures that come with the package."""
