"""How to reach a server: its address, TLS, and where to find secrets."""
