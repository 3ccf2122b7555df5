"""Record batches: bytes <-> columns, compression, transactions.

Begin with `batches`, which decodes an answer; `batch_header` and `record_format` are the layouts.
"""
