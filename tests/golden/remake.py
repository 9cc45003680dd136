"""Remake captures/ from the real engines, and what is derived from them: `make golden`. Needs the engines.

Every case is one `netlab repro`; the capture at each end is kept, and the diagnosis of it as JSON beside this file.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from netlab.analysis import diagnose
from netlab.capture.read import open_capture

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "captures"
GOLDEN = Path(__file__).resolve().parent
# name -> arguments; the server's name is in the capture's.
CASES = {
    "rtt32-initcwnd8": ["--rtt", "32ms", "--initcwnd", "8"],
    "rtt80-initcwnd6": ["--rtt", "80ms", "--initcwnd", "6", "--server", "clickhouse:26.7"],
    "rtt32-initcwnd20": ["--rtt", "32ms", "--initcwnd", "20", "--server", "clickhouse:26.7"],
}


def derive(path: Path) -> list[dict[str, object]]:
    """Return what a test compares: no times, which differ from run to run, but what follows from the packets."""
    with open_capture(path) as capture:
        found = diagnose(capture.segments(), file=path.name, summary=capture.summary)
    return [
        {
            "vantage": found.vantage,
            "connection": exchange.connection,
            "index": exchange.index,
            "kind": exchange.kind,
            "cause": exchange.cause,
            "also": list(exchange.also),
            "extra_round_trips": exchange.extra_round_trips,
            "flights": [flight.segments for flight in exchange.flights],
            "query": exchange.query,
            "segments": [[s.frame, s.direction, s.length, list(s.labels)] for s in exchange.segments],
            "frames": [list(finding.evidence.frames) for finding in exchange.findings],
            "baselines": {baseline.method: baseline.verdict for baseline in exchange.baselines},
        }
        for exchange in found.exchanges
    ]


def write(path: Path) -> None:
    """Write the golden JSON of one capture."""
    text = msgspec.json.format(msgspec.json.encode(derive(path)), indent=1)
    (GOLDEN / f"{path.stem}.json").write_bytes(text + b"\n")


def remake() -> None:
    """Run every case and replace captures and JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, arguments in CASES.items():
            folder = Path(scratch) / name
            command = [sys.executable, "-m", "netlab", "repro", *arguments, "--count", "3", "--output", str(folder)]
            subprocess.run(command, check=True)
            for capture in sorted(folder.glob("*.pcapng")):
                server, end, _ = capture.name.rsplit(".", 2)
                shutil.copy(capture, CAPTURES / f"{server}-{name}.{end}.pcapng")


def main() -> None:
    """Remake all, or with --derive only the JSON of the captures that are there."""
    if "--derive" not in sys.argv:
        remake()
    for path in sorted(CAPTURES.glob("*.pcapng")):
        write(path)


if __name__ == "__main__":
    main()
