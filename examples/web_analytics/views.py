"""Prints page views of three sites as JSON lines: python views.py 100 80 90"""

import json
import sys


def main(counts: list[int]) -> None:
    for site, count in enumerate(counts):
        for n in range(count):
            at = f"2024-01-15T10:{n // 60:02}:{n % 60:02}Z"
            print(json.dumps({"site": site, "page": f"/page/{n % 7}", "at": at}))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
