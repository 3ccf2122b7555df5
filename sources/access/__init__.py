"""How a server is reached: its address, TLS, and where secrets are found."""
