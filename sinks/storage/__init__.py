"""Where tables are: places, object stores, their settings and their errors."""
