"""The logical side of a replica: one ``.sql`` file for each view over its tables, and what makes them available."""
