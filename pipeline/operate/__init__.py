"""What an operator has done to a replica: backfill, repair, rebuild, maintenance."""
