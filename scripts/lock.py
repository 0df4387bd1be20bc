"""Write the versions installed in the two environments into the two lock files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEADS = {
    "requirements.lock": "# Every version that was tested together (Python 3.11). Renew with: make lock",
    "requirements-bench.lock": "# The environment of bench/: the tested set with the peers it is timed against. "
    "Renew with: make lock",
}
CARRIERS = Path("requirements-carriers.lock")  # installed without what they depend on


def frozen(venv: str) -> list[str]:
    """Pinned distributions of an environment, local build tags (``+cpu``) removed."""
    out = subprocess.run(
        [f"{venv}/bin/python", "-m", "pip", "freeze", "--all", "--exclude-editable"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    carriers = [line.lower() for line in CARRIERS.read_text(encoding="utf8").splitlines() if "==" in line]
    left_out = ("icml24", "pip==", "wheel==", "-e ", *carriers)
    lines = (line.split("+")[0].strip() for line in out.splitlines())
    return sorted((line for line in lines if line and not line.lower().startswith(left_out)), key=str.lower)


def main(venvs: list[str]) -> None:
    """Renew one lock file per environment."""
    for (name, head), venv in zip(HEADS.items(), venvs, strict=True):
        Path(name).write_text("\n".join([head, *frozen(venv)]) + "\n", encoding="utf8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
