"""Delta tables: versions committed through Delta Kernel, data files with statistics, the log read without a JVM."""
