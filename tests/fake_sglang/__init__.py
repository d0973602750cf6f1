"""Parts of the fake server (`tests/fake_server.py`), which finds them beside itself. Standard library only."""
