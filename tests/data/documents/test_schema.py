"""Document ids, hashes and metadata."""

import json

import pytest

from marin.data.documents.schema import encode_metadata, make_document
from marin.data.documents.split import split_of


def test_the_id_depends_on_source_place_and_normalised_text_only():
    base = make_document("a\r\nb", source="web", url="http://x/")
    assert make_document("a\nb", source="web", url="http://x/", metadata={"k": 1}, language="en").id == base.id
    others = [
        make_document("a\nb", source="web2", url="http://x/"),
        make_document("a\nb", source="web", url="http://x/2"),
        make_document("a\nc", source="web", url="http://x/"),
    ]
    assert len({base.id, *(other.id for other in others)}) == 4


def test_parts_do_not_run_into_each_other():
    assert make_document("bc", source="s", position="a").id != make_document("c", source="s", position="ab").id


def test_exact_copies_share_a_text_hash():
    one, two = (make_document("same\r\ntext", source="s", url=u) for u in ("http://a/", "http://b/"))
    assert one.text_hash == two.text_hash
    assert one.id != two.id


def test_a_document_without_a_place_is_refused():
    with pytest.raises(ValueError, match="neither url nor position"):
        make_document("text", source="s")


def test_metadata_that_json_cannot_hold_is_kept_as_text():
    text = encode_metadata({"b": float("nan"), "a": 2**70, "c": [1, {"d": "x\x00\ud800"}]})
    assert json.loads(text) == {"a": str(2**70), "b": "nan", "c": [1, {"d": "x\ufffd"}]}
    assert text == encode_metadata({"c": [1, {"d": "x\ufffd"}], "b": "nan", "a": str(2**70)})


def test_the_split_follows_the_share_and_grows_with_it():
    ids = [make_document(str(n), source="s", position=str(n)).id for n in range(4000)]
    held = {share: {i for i in ids if split_of(i, share) == "validation"} for share in (0.0, 0.1, 0.2, 1.0)}
    assert held[0.0] == set()
    assert held[1.0] == set(ids)
    assert held[0.1] < held[0.2]
    assert abs(len(held[0.1]) / len(ids) - 0.1) < 0.02


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        split_of("00", share)
