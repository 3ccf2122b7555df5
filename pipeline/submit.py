"""The script for spark-submit: ``spark-submit --packages <delta> --py-files <wheel> pipeline/submit.py VERB …``.

Where there is no network, ``--jars`` with the files of ``logtwin jars`` takes the place of ``--packages``.

It runs ``logtwin VERB`` with its arguments in the session that spark-submit set up; without a verb, ``replicate``.
``--output FILE`` before the verb writes the verb's results to that file. In spark-submit's own output they would be
mixed with everything else that Spark and Python print.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path


def run(arguments: list[str]) -> None:
    """Run the verb and leave the process with its exit code."""
    if arguments[:1] == ["--output"]:
        with Path(arguments[1]).open("w", encoding="utf-8") as file, redirect_stdout(file):
            run(arguments[2:])
        return
    from pipeline.cli.app import main

    names_a_verb = bool(arguments) and not arguments[0].startswith("-")
    main(arguments if names_a_verb else ["replicate", *arguments])


if __name__ == "__main__":
    # spark-submit puts this file's own folder first on the path, where `session` and the like would be found.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    from pipeline.cli.entry import heed_signals

    heed_signals()
    run(sys.argv[1:])
