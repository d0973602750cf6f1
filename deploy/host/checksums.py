"""Ask a running server for the checksums of the draft that it has loaded.

Runs on the host as `python3 -I -c SOURCE`, standard library only, Python 3.8 and later. On stdin {"url", "keys",
"ranks", "api", "patience"} as `swap` takes them, on stdout {"checksums": {parameter: checksum}}, of several ranks
{"parameter@rank": checksum}; or {"checksums": null, "why": words}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deploy.host.swap_server import Server, Silent, Unasked


def asked(request: dict[str, Any]) -> dict[str, Any]:
    server = Server(request["url"], request["keys"], request["api"], request.get("patience", 120.0))
    try:
        return {"checksums": server.checksums(request["ranks"])}
    except (Silent, Unasked) as error:
        return {"checksums": None, "why": str(error)}


print(json.dumps(asked(json.load(sys.stdin))))
