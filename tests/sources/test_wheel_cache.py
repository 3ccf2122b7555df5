"""sources.decoding.compiled where code is in a wheel, or in no file; in new processes: test_compiled.py."""

import zipfile
from pathlib import Path
from typing import Any

from sources.decoding.compiled import WheelCacheLocator


def made_by_exec() -> Any:
    """A function that has no file, so numba has no place for its machine code."""
    names: dict[str, Any] = {}
    exec("def first(values):\n    return values[0]\n", names)  # noqa: S102  # that is the point
    return names["first"]


def located(wheel: Path, text: str) -> WheelCacheLocator:
    """What finds the machine code of a module with this text in a wheel."""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sources/loops.py", text)
    locator = WheelCacheLocator.from_function(made_by_exec(), f"{wheel}/sources/loops.py")
    assert locator is not None
    return locator


def test_machine_code_of_a_wheel_is_kept_elsewhere_and_for_one_text_of_its_module(tmp_path: Path) -> None:
    locator = located(tmp_path / "logtwin-0.1.0-py3-none-any.whl", "text = 1")
    assert not Path(locator.get_cache_path()).is_relative_to(tmp_path)
    stamp = locator.get_source_stamp()
    assert located(tmp_path / "logtwin-0.1.1-py3-none-any.whl", "text = 2").get_source_stamp() != stamp
    assert located(tmp_path / "logtwin-0.2.0-py3-none-any.whl", "text = 1").get_source_stamp() == stamp
