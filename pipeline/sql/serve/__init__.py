"""``logtwin sql --serve``: a server with a warm Spark session, its clients, and their protocol."""
