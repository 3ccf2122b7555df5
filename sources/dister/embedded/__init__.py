"""An embedded leader: writes the files of a dister leader, for the demo and the tests. Begin with `leader`."""
