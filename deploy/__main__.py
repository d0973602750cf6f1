"""`python -m deploy`, and the command `deploy`."""

from __future__ import annotations

from deploy.cli import main

if __name__ == "__main__":
    main()
