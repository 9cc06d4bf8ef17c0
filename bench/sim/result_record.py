"""Writes results: figures with date, machine and versions, in the form of the other benchmarks."""

import datetime as dt
import json
import os
import pathlib
import platform
import subprocess


def tree_commit() -> str:
    """Returns the commit of the tree, with `+` when it has changes."""
    git = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    completed = subprocess.run(git, capture_output=True, text=True, check=False)
    return completed.stdout.strip()


def processor_name() -> str:
    """Returns the name of the processor."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].split(": ", 1)[1] if names else platform.processor()


def write_record(folder: str, name: str, settings: dict, figures: dict) -> None:
    """Writes folder/DATE-NAME.json; a second run of a day replaces the first."""
    now = dt.datetime.now(dt.UTC)
    record = {
        "name": name,
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": {
            "cores": os.cpu_count(),
            "cpu": processor_name(),
            "kernel": platform.release(),
            "load_1min": os.getloadavg()[0],
        },
        "versions": {"commit": tree_commit()},
        "settings": settings,
        "figures": figures,
    }
    path = pathlib.Path(folder) / f"{now:%Y-%m-%d}-{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"kept in {path}")
