"""Put large language models and their drafts on bare GPU hosts over SSH, and prove that they serve."""

__version__ = "0.1.0"
