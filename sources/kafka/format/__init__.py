"""Record batches: bytes <-> columns, compression, transactions."""
