"""Write a replica: files, coverage, handshake, Delta commits. Imports of ``sources`` only offsets, errors, master."""
