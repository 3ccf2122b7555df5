"""Tests of logtwin. Run from the project's folder."""

import os

# Some plugins say here how wide a terminal is. There is none: what is printed is as wide as in a file.
os.environ.pop("COLUMNS", None)
