"""Files of a leader that cannot be read at the moment: nothing is concluded from it, and it is tried again."""

import errno
import os
from pathlib import Path

import pytest

from sources.dister.layout import ENTRY_LOG
from sources.errors import MasterSilent
from sources.options import CheckAndFix
from tests.dister_folders import leader, write_log
from tests.sources.dister.test_check_and_fix import lines, log_of


class Reading:
    """Counts reads of files, and fails one of them."""

    def __init__(self) -> None:
        self._pread = os.pread
        self._fails_at = 0
        self.count = 0

    def fail_at(self, number: int) -> None:
        self._fails_at, self.count = number, 0

    def pread(self, file: int, length: int, at: int) -> bytes:
        self.count += 1
        if self.count == self._fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._pread(file, length, at)


@pytest.mark.parametrize("mode", ["safe", "faithful"])
def test_an_error_while_looking_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CheckAndFix
) -> None:
    """DI-77: wherever in the log it happens. The next look finds what is there."""
    ids = leader(1_200)
    write_log(tmp_path, ids)
    log = log_of(tmp_path, mode)
    reading = Reading()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", reading.pread)
        assert log.common_offset(lines(ids[:-1])) == ids[-2] + 1
        in_all = reading.count
        for fails_at in range(1, in_all + 1, max(1, in_all // 3)):
            reading.fail_at(fails_at)
            with pytest.raises(MasterSilent):
                log.common_offset(lines(ids[:-1]))
    assert log.common_offset(lines(ids[:-1])) == ids[-2] + 1


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_scenario_20_a_file_that_cannot_be_read_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """It names the file and what the system said."""
    write_log(tmp_path, leader(5))
    opened = Path.open

    def refused(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "0":
            raise OSError(refusal, os.strerror(refusal), str(path))
        return opened(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(MasterSilent, match=str(tmp_path / ENTRY_LOG / "0" / "0")) as caught:
        log_of(tmp_path).bounds()
    assert caught.value.is_transient
    assert caught.value.found == os.strerror(refusal)
    assert caught.value.hint
