"""The record of a run: its events as they came and what it filed, in a folder of its own, to be listed and replayed."""

from deploy.record.reading import EVENTS, parse, read
from deploy.record.summaries import RunSummary, find, summaries, summary
from deploy.record.writing import Recorder, host_folder, new_id, runs_folder

__all__ = [
    "EVENTS", "Recorder", "RunSummary", "find", "host_folder", "new_id", "parse", "read", "runs_folder", "summaries",
    "summary",
]  # fmt: skip
