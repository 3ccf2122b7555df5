"""`logtwin sql --serve`: a warm session, where it and its clients meet, and what they say to each other."""
