"""``logtwin sql --serve``: a server with a warm Spark session, its clients, and their protocol.

Begin with `server.py`; `meeting.py` is how the two find each other.
"""
