"""``logtwin sql``: statements in, results out, on a session that reads one replica and writes nothing."""
