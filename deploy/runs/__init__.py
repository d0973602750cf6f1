"""Runs as their records tell them: one read whole (kept), which of many (choosing), how one went (showing), how two
differ (comparing). Nothing here asks a host.
"""
