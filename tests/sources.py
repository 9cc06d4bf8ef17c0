"""Source distributions of other projects, whose own tests are run on our drop-in modules."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

DOWNLOADS = Path(tempfile.gettempdir()) / "glasscache-sources"


def source_distribution(requirement: str) -> Path:
    """Return the unpacked source distribution of `name==version`, fetched once."""
    folder = DOWNLOADS / requirement
    if not list(folder.glob("*.tar.gz")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run(
            [*command, "--no-binary", ":all:", "--dest", str(folder), requirement], check=True
        )
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as archive_file:
            archive_file.extractall(folder, filter="data")
    (project,) = (path for path in folder.iterdir() if path.is_dir())
    return project
