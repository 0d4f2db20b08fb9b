"""Requests to receivers of others: only to hosts that are allowed, to the address that was checked, without redirects."""
