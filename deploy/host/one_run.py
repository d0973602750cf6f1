"""Say what one run of a deployment is: one_run.py FOLDER.

Prints what `deployed.run` tells of it, or null where there is no such folder. Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from deploy.host.deployed import marks, run


def answer(folder: str) -> Any:
    return run(folder, marks()) if os.path.isdir(folder) else None


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
