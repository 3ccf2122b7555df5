"""The script for spark-submit: ``spark-submit --packages <delta> --py-files <wheel> pipeline/submit.py --config F``.

It runs ``logtwin replicate`` with the arguments given, in the session that spark-submit set up.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # spark-submit puts this file's own folder first on the path, where `session` and the like would be found.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    from pipeline.cli import main

    main(["replicate", *sys.argv[1:]])
