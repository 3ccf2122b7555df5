"""Code that speaks to a master log, or is one: bytes -> records -> Arrow. Never imports ``sinks`` or ``pipeline``.

Begin with `master`, the contract of every kind of master; `registry` chooses the code that fulfils it.
"""
