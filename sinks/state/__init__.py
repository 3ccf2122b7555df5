"""What the log table says of each log: position, writer and holes, and who may change them."""
