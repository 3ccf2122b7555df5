"""Facts as pictures, tables and sentences. Pure."""
