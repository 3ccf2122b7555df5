"""Delta tables: versions committed through Delta Kernel, data files with statistics, the log read without a JVM.

Begin with `kernel.py`, which commits; `files.py` writes data files, `delta_log.py` reads versions.
"""
