"""A pytest plugin: an index out of bounds is a bug and ends the test, whatever record it is in."""

from sources.decoding import undecodable

undecodable.NOT_THE_RECORDS = (*undecodable.NOT_THE_RECORDS, IndexError)
