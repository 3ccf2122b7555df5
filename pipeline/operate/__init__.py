"""Operations that an operator runs on a replica: backfill, repair, rebuild, maintenance."""
