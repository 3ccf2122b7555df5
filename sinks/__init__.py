"""Write a replica: files, coverage, handshake, Delta commits. Of ``sources`` it imports only offsets, errors, master."""
