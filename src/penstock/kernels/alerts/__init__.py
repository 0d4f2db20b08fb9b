"""Alerts: when something begins and ends, over rows that stay and over rows that change."""
