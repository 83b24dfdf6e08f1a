"""What each task of an extraction reads."""

from marin.data.crawl.artifacts import Crawl, WarcFile
from marin.data.crawl.config import MIB, ExtractConfig
from marin.data.crawl.extraction.bundles import LEAST_BYTES, MOST_BYTES, plan_bundles


def _crawl(sizes):
    warcs = tuple(WarcFile(f"{n}.warc.zst", f"memory://b/{n}.warc.zst", size) for n, size in enumerate(sizes))
    return Crawl(source="web", warcs=warcs, pages=None, bytes=0)


def _sizes(sizes):
    """Sizes of the tasks, after a check that every file is in one of them, in order."""
    crawl = _crawl(sizes)
    bundles = plan_bundles(crawl, ExtractConfig())
    assert [warc for bundle in bundles for warc in bundle.crawl.warcs] == list(crawl.warcs)
    assert [bundle.first for bundle in bundles] == sorted({bundle.first for bundle in bundles})
    assert len({bundle.stem for bundle in bundles}) == len(bundles)
    return [sum(warc.size for warc in bundle.crawl.warcs) for bundle in bundles]


def test_a_crawl_without_files_has_no_tasks():
    assert plan_bundles(_crawl([]), ExtractConfig()) == []


def test_tiny_files_share_a_task():
    assert _sizes([1000] * 5000) == [5_000_000]
    assert _sizes([0, 0, 0]) == [0]


def test_a_crawl_of_some_size_is_spread_over_sixteen_tasks():
    tasks = _sizes([5 * MIB] * 400)
    assert len(tasks) == 16
    assert max(tasks) <= 1.1 * min(tasks)


def test_no_task_reads_more_than_its_share_of_a_big_crawl():
    sizes = [(1 + n * 7 % 13) * 20 * MIB for n in range(300)]
    tasks = _sizes(sizes)
    assert max(tasks) <= MOST_BYTES + max(sizes)
    assert min(tasks[:-1]) >= MOST_BYTES - max(sizes)


def test_a_small_crawl_is_not_torn_into_tiny_tasks():
    tasks = _sizes([MIB] * 40)
    assert min(tasks) >= LEAST_BYTES


def test_a_task_carries_its_own_files_only():
    bundles = plan_bundles(_crawl([100 * MIB] * 1000), ExtractConfig())
    assert max(len(bundle.crawl.warcs) for bundle in bundles) <= 3


def test_files_of_unknown_size_are_tasks_of_their_own():
    crawl = _crawl([None, None, 10, None])
    assert [len(bundle.crawl.warcs) for bundle in plan_bundles(crawl, ExtractConfig())] == [1, 1, 1, 1]
