"""A producer and its workloads, for the demo and the tests. Begin with `producer`."""
