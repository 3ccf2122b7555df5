"""An upload of a version that breaks, without a store; with one: tests/objectstore/test_commit_faults.py."""

from typing import Any
from unittest.mock import Mock

import pytest

from sinks.delta.conditional_commits import ConditionalCommitter


def test_an_upload_that_breaks_is_aborted_and_never_completed() -> None:
    """Closing it would make an object of the part that is there: half a version."""
    stream = Mock(write=Mock(side_effect=ConnectionResetError("the way broke")))
    builder = Mock()
    builder.must.return_value = builder.opt.return_value = builder
    builder.build.return_value = stream
    target = Mock()
    target.getFileSystem.return_value.createFile.return_value = builder
    committer: Any = Mock(_path=Mock(return_value=target))
    with pytest.raises(ConnectionResetError, match="the way broke"):
        ConditionalCommitter._create(committer, "s3a://lake/log/_delta_log/0.json", b"{}")
    stream.abort.assert_called_once_with()
    stream.close.assert_not_called()
