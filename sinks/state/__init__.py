"""What the log table says of each log: position, writer, holes; and the right to move them."""
