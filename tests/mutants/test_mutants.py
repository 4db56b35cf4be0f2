"""Each defence against the twenty ways is needed: a library without it fails the test of that number.

A mutant that survives means that its test would not see the defence go. All mutants take a minute on two processors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.mutants.mutate import HERE, ROOT, WAYS, StalePatch, Workshop, apply_patch, failed_as_it_should

PATCHES = sorted(HERE.glob("*.patch"))
WORKERS = 2
Done = CompletedProcess[str]


@pytest.fixture(scope="module")
def tried() -> Iterator[Callable[[Path | None], Future[Done]]]:
    """What the tests said in the copy of each patch; all are under way from the first question on."""
    with tempfile.TemporaryDirectory(prefix="gemini-mutants-") as folder:
        workshop = Workshop(Path(folder))
        with ThreadPoolExecutor(WORKERS) as pool:
            futures = {patch: pool.submit(workshop.tried, patch) for patch in [None, *PATCHES]}
            yield lambda patch: futures[patch]
            for future in futures.values():
                future.cancel()


def test_every_way_has_a_test_and_a_mutant() -> None:
    source = (ROOT / WAYS).read_text()
    numbers = [f"{number:02}" for number in range(1, 21)]
    assert [number for number in numbers if f"def test_way_{number}_" not in source] == []
    assert [number for number in numbers if not any(p.name.startswith(number) for p in PATCHES)] == []


def test_a_patch_that_does_not_fit_says_so(tmp_path: Path) -> None:
    patch = tmp_path / "01-of-old.patch"
    patch.write_text("Gone.\n--- a/libhook/gone.c\n+++ b/libhook/gone.c\n@@ -1 +1 @@\n-old line\n+new line\n")
    (tmp_path / "libhook").mkdir()
    for text in ("another line\n", "old line\nold line\n"):
        (tmp_path / "libhook" / "gone.c").write_text(text)
        with pytest.raises(StalePatch, match=r"01-of-old.patch no longer fits libhook/gone.c"):
            apply_patch(patch, tmp_path)
    (tmp_path / "libhook" / "gone.c").write_text("a\nold line\nb\n")
    assert apply_patch(patch, tmp_path) == ["libhook/gone.c"]
    assert (tmp_path / "libhook" / "gone.c").read_text() == "a\nnew line\nb\n"


@pytest.mark.timeout(900)
def test_a_copy_without_a_patch_passes(tried: Callable[[Path | None], Future[Done]]) -> None:
    done = tried(None).result()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("patch", PATCHES, ids=[patch.stem for patch in PATCHES])
def test_without_its_defence_the_library_fails(patch: Path, tried: Callable[[Path | None], Future[Done]]) -> None:
    done = tried(patch).result()
    assert failed_as_it_should(done), f"{patch.name} survived its tests:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
