"""What was measured of a server, as data, and what follows from it: pure, read back from `bench.json` years later.

loads -> samples (one request each) -> summary -> Measurement -> gates, diagnosis, report, diff
"""
