"""Build the packaged record of sea-surface temperatures from the original file.

python tools/build_sst.py FOLDER_OF_THE_ORIGINAL ipot/data/assets/sst_weekly.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ipot.data import sst


def main(source: Path, target: Path) -> None:
    """Write the compact form, and say how far it is from the original."""
    record = sst.read(source)
    arrays = sst.compact(record)
    np.savez_compressed(target, **arrays)
    gap = np.abs(sst.expand(arrays).sst.astype(np.float64) - record.sst).max()
    print(f"{target}: {target.stat().st_size / 1e6:.2f} MB, within {gap:.4f} K of the original")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
