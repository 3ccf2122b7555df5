"""Write a replica, and read it back. Of ``sources`` it imports only the contract (`sources.master` and the like)."""
