"""The warehouse in an object store: a real S3 server on loopback, and a link to it that fails as S3 does."""
