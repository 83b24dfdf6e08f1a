"""Which tests build each kind of bad input, and that they are there.

A row says what comes in and what must become of it; the tests after it build that input and look.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

ROWS: dict[str, tuple[str, ...]] = {
    "gzip member corrupt mid-file: skip, count, keep the offset; fail above a rate": (
        "data/crawl/test_records.py::test_forty_flipped_bytes_lose_one_record",
        "data/crawl/test_steps.py::test_a_damaged_member_costs_one_record_and_many_fail_the_step",
        "data/crawl/test_damage.py::test_damage_costs_no_record_but_those_that_it_touches",
    ),
    "last member truncated: keep what is whole, count it, flag the file": (
        "cases/test_crawl_01.py::test_a_cut_file_keeps_its_whole_pages_and_is_marked",
        "data/crawl/test_records.py::test_a_file_cut_inside_its_last_record_is_truncated_and_loses_that_record_only",
    ),
    "gzip as a whole: accept, and say that it cannot be read in parts": (
        "data/crawl/test_bad_inputs.py::test_a_file_that_is_gzip_as_a_whole_is_read_and_said_to_be_so",
        "data/crawl/test_records.py::test_every_packaging_gives_the_same_records",
    ),
    "empty or zero-byte file: zero records, a valid result": (
        "data/crawl/test_records.py::test_a_file_without_records_is_valid",
        "data/crawl/test_steps.py::test_an_empty_file_is_a_valid_crawl_without_documents",
        "data/sources/test_bad_rows.py::test_a_task_without_documents_leaves_no_shard",
    ),
    "zero-length record, HTTP 204: empty_payload": (
        "data/crawl/test_bad_inputs.py::test_a_record_of_no_bytes_and_an_answer_without_content_are_empty_payloads",
    ),
    "missing or wrong WARC Content-Length: drop, go on at the next head": (
        "data/crawl/test_records.py::test_a_record_without_a_length_is_dropped_and_the_next_one_is_found",
        "data/crawl/test_bad_inputs.py::test_a_record_whose_length_is_wrong_costs_itself_only",
    ),
    "wrong HTTP Content-Length: the WARC block length holds": (
        "data/crawl/test_records.py::test_the_block_length_delimits_whatever_http_says",
        "data/crawl/test_response.py::test_a_body_shorter_than_http_says_is_kept_and_noticed",
    ),
    "missing record id, URI or date: an id of the place, nulls": (
        "data/crawl/test_steps.py::test_a_record_without_an_address_or_date_is_kept_under_its_place",
        "data/crawl/test_bad_inputs.py::test_a_record_that_tells_nothing_of_itself_has_an_id_of_its_place",
    ),
    "revisit, request, dns, metadata: counted by type": (
        "cases/test_crawl_07.py::test_fourteen_kinds_of_records_give_the_good_pages_only",
    ),
    "chunked encoding, right or malformed: decode, or keep what comes before the fault": (
        "data/crawl/test_response.py::test_chunks_are_joined_and_kept_up_to_a_break",
        "cases/test_crawl_03.py::test_readable_bodies_come_out_whatever_the_label_and_half_a_body_is_counted",
    ),
    "gzip, deflate, br, zstd payload; a label on a plain one": (
        "data/crawl/test_response.py::test_each_encoding_is_undone_and_a_wrong_label_is_passed_over",
    ),
    "decompression bomb: stop at the cap, count": (
        "data/crawl/test_response.py::test_a_bomb_is_stopped_at_the_cap",
        "data/inputs/test_packing.py::test_a_zstd_bomb_is_unpacked_a_little_at_a_time",
    ),
    "charset label disagrees with the bytes: the first strict success, recorded": (
        "data/crawl/test_response.py::test_the_first_candidate_that_decodes_strictly_wins",
        "cases/test_crawl_02.py::test_every_page_comes_out_and_bad_labels_are_counted",
    ),
    "undecodable: replace; drop above 1 %, counted": (
        "data/crawl/test_bad_inputs.py::test_a_page_with_too_many_undecodable_bytes_is_dropped_and_one_with_a_few_keeps_its_letters",
    ),
    "invalid UTF-8 in JSON lines, CSV and text: the same, and no line ends the shard": (
        "data/sources/test_sources.py::test_a_bad_line_costs_one_record_and_its_place_is_kept",
        "data/sources/test_bad_rows.py::test_texts_of_other_codecs_are_read_and_a_few_bad_bytes_spoil_no_letter",
    ),
    "lone surrogates: U+FFFD before Arrow, hashing and tokenising": (
        "data/documents/test_normalise.py::test_lone_surrogates_are_replaced_and_pairs_are_joined",
        "data/sources/test_sources.py::test_a_bad_line_costs_one_record_and_its_place_is_kept",
        "data/filtering/test_bad_inputs.py::test_lone_surrogates_cost_no_document_its_signals",
    ),
    "NUL and C0 controls: strip, count; binary above a rate": (
        "data/crawl/test_steps.py::test_pages_that_are_no_text_have_their_reasons",
        "data/sources/test_bad_rows.py::test_what_is_taken_out_of_texts_is_counted",
        "data/filtering/test_bad_inputs.py::test_control_signs_do_not_turn_a_good_text_into_a_bad_one",
    ),
    "CRLF, CR, U+2028, BOM: one form before hashing": (
        "data/documents/test_normalise.py::test_every_line_break_becomes_a_newline",
        "data/filtering/test_bad_inputs.py::test_every_line_break_breaks_lines",
    ),
    "Unicode forms: NFC for text and id": ("data/filtering/test_bad_inputs.py::test_unicode_forms_make_the_same_copy",),
    "right to left, CJK, Thai: order kept, rules of the script": (
        "data/filtering/test_scripts.py::test_prose_passes_in_every_script",
        "data/filtering/test_bad_inputs.py::test_a_right_to_left_text_keeps_its_order",
    ),
    "empty or blank document: dropped, counted, never a copy of another": (
        "data/filtering/test_bad_inputs.py::test_a_text_of_nothing_is_dropped_and_resembles_nothing",
        "cases/test_crawl_05.py::test_a_text_without_words_is_dropped_with_a_reason",
    ),
    "document shorter than an n-gram: exact copies only": (
        "cases/test_dedup_01.py::test_different_short_texts_stay_and_each_repeat_loses_one_copy",
    ),
    "100 MB document: bounded memory": (
        "data/crawl/test_memory.py::test_a_page_of_100_mb_takes_no_more_than_a_few_of_its_size_and_costs_itself_only",
        "data/sources/test_bad_rows.py::test_a_large_text_is_one_document_in_a_few_times_its_size_and_a_larger_one_is_counted",
        "data/filtering/test_bad_inputs.py::test_a_huge_document_is_measured_in_memory_that_does_not_grow_with_it",
        "cases/test_tok_05.py::test_a_document_longer_than_a_piece_is_cut_and_still_whole",
    ),
    "one line of 1 MB without spaces: linear time": (
        "data/filtering/test_bad_inputs.py::test_a_line_of_a_million_signs_without_spaces_takes_no_more_time_than_it_is_long",
        "data/crawl/test_extractors.py::test_odd_markup_takes_linear_time",
    ),
    "deep nesting of HTML: a cap, then tags are stripped": (
        "data/crawl/test_extractors.py::test_a_page_nested_too_deep_is_refused_in_linear_time",
        "cases/test_crawl_06.py::test_giant_and_deep_pages_are_counted_and_the_next_page_comes_out",
    ),
    "duplicate ids: the same text once; other text has another id": (
        "data/crawl/test_bad_inputs.py::test_a_page_that_was_archived_twice_is_kept_once_and_one_that_changed_has_two_ids",
        "data/sources/test_sources.py::test_ids_come_from_the_url_or_else_the_id_or_else_the_place",
    ),
    "missing text column, wrong type, further columns": (
        "data/sources/test_sources.py::test_a_missing_column_is_named_with_those_that_are_there",
        "data/sources/test_bad_rows.py::test_a_file_without_the_column_among_others_is_named",
    ),
    "other schemas in other parquet files: one schema of documents": (
        "data/sources/test_bad_rows.py::test_files_of_different_schemas_become_documents_of_one",
    ),
    "broken or half-written line: drop, count, keep the offset": (
        "data/sources/test_sources.py::test_a_bad_line_costs_one_record_and_its_place_is_kept",
        "data/sources/test_bad_rows.py::test_a_last_row_that_is_cut_is_lost_and_counted",
        "data/sources/test_bad_rows.py::test_a_quote_that_nothing_closes_costs_its_row_and_not_the_rest_of_the_file",
    ),
    "NaN, Infinity, giant integers in metadata: kept as text": (
        "data/sources/test_bad_rows.py::test_numbers_of_any_size_and_values_of_any_depth_cost_no_record",
    ),
    "input that changed between plan and read: refused": (
        "data/crawl/test_steps.py::test_a_file_that_changed_after_the_crawl_step_is_refused",
        "data/crawl/test_steps.py::test_a_change_that_keeps_the_size_is_refused_too",
    ),
    "skewed shards, thousands of tiny files: balanced by bytes, no empty shards": (
        "data/crawl/test_bundles.py::test_tiny_files_share_a_task",
        "data/crawl/test_bundles.py::test_no_task_reads_more_than_its_share_of_a_big_crawl",
        "data/sources/test_bad_rows.py::test_thousands_of_tiny_files_are_one_task_and_empty_ones_leave_no_shard",
    ),
    "tokenizer without a token that is asked for; vocabulary over 65,535": (
        "cases/test_tok_06.py::test_a_name_that_the_vocabulary_lacks_is_refused_before_any_work",
        "tokens/shards/test_indexed.py::test_an_id_beyond_the_vocabulary_is_never_wrapped",
    ),
    "text that holds names of special tokens: plain text": (
        "cases/test_tok_04.py::test_no_special_id_appears_inside_a_body",
        "data/filtering/test_bad_inputs.py::test_special_tokens_are_text_like_any_other",
    ),
    "packed source cut or damaged: keep what lies before, count, name the file": (
        "data/sources/test_bad_rows.py::test_a_cut_file_keeps_what_lies_before_the_cut_and_is_named",
        "data/sources/test_dumps.py::test_a_cut_is_counted_wherever_it_is",
        "data/inputs/test_packing.py::test_a_cut_is_said_and_what_lies_before_it_is_read",
    ),
    "server that throttles, fails or falls silent: asked again": (
        "data/sources/test_ready.py::test_a_dump_of_common_crawl_is_read_by_its_list",
        "data/inputs/test_patient.py::test_trouble_that_stays_is_said_with_the_place",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_every_kind_of_bad_input_has_its_tests(row: str) -> None:
    for place in ROWS[row]:
        file, _, name = place.partition("::")
        source = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{place} is not there"
