"""Stop an installation that brought a CUDA build: it costs gigabytes and computes other bits.

Run by the installer and by the tests; knows nothing of the book.
"""

from __future__ import annotations

import sys
from importlib import metadata

FORBIDDEN = ("nvidia-", "cuda-", "triton", "torchvision", "pytorch-triton")


def forbidden() -> list[str]:
    """Names of the installed distributions that belong to a CUDA build."""
    names = {(d.metadata["Name"] or "").lower().replace("_", "-") for d in metadata.distributions()}
    return sorted(name for name in names if name.startswith(FORBIDDEN))


if __name__ == "__main__":
    found = forbidden()
    if found:
        sys.exit(
            f"This environment holds a CUDA build ({', '.join(found[:4])} ...). The book runs on CPU builds of torch.\n"
            "Remove the environment and name an index of CPU builds: make book TORCH_INDEX=<address>\n"
            "(PyTorch's own start page shows the address when you choose pip, your system and CPU)."
        )
