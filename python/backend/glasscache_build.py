"""The build backend: maturin, with the command `glasscache` built first and laid into the wheel.

A wheel then gives the module and the command in one `pip install`. An editable install gets the
module alone, since developers have the command in `target/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

_WHEEL_SCRIPTS_DIR = Path("build/glasscache.data/scripts")

# maturin looks for the folder already when it only writes metadata.
_WHEEL_SCRIPTS_DIR.mkdir(parents=True, exist_ok=True)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _build_wheel_command() -> None:
    """Build the command and put it where maturin takes a wheel's scripts from."""
    subprocess.run(["cargo", "build", "--release", "-p", "glasscache-cli"], check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    shutil.copy2(target / "release" / "glasscache", _WHEEL_SCRIPTS_DIR / "glasscache")


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Return the name of the wheel, with module and command, made in wheel_directory."""
    _build_wheel_command()
    wheel_name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return wheel_name


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Return the name of an editable wheel, with the module alone."""
    wheel_name: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return wheel_name
