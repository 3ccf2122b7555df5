"""What a running job tells others: its progress, metrics, probes, and the file that says it lives."""
