"""The configuration file, as values; and which logs and topics of it a verb is about."""
