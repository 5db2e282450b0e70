"""Prints the median time of every measured record of a result folder.

Usage: python examples/read_records.py FOLDER
"""

import json
import sys
from pathlib import Path

with (Path(sys.argv[1]) / "records.jsonl").open(encoding="utf-8") as lines:
    # A case that was measured again has several records, which are all printed. The last one counts.
    records = [json.loads(line) for line in lines]
for record in records:
    if record["outcome"] == "measured":
        name = f"{record['method']} {record['protocol']} N={record['query_len']}"
        print(f"{name:50} {record['time_median_ms']:10.3f} ms  {record['implementation']}")
