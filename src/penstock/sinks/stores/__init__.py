"""Stores that others query, kept in step: every epoch's rows and its marker in one transaction of the store."""
