"""A secret's value is there inside the step that has it, and nowhere else."""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.execution.failures import StepError
from marin.execution.redaction import exposes, know, redact, redacting_output, refuse_exposed
from marin.execution.secrets import (
    Secret,
    SecretValues,
    available,
    looks_secret,
    secret_values,
    secrets_in,
    store_credentials,
)

VALUE = "correct-horse-battery"


@dataclass(frozen=True)
class Inner:
    """Holds a secret below a tuple and a dict."""

    tokens: tuple[dict[str, Secret], ...]


def test_a_secret_shows_and_pickles_its_variable_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_TEST_TOKEN", VALUE)
    secret = Secret("MARIN_TEST_TOKEN")
    assert repr(secret) == str(secret) == f"{secret}" == "Secret('MARIN_TEST_TOKEN')"
    assert VALUE.encode() not in pickle.dumps(secret)
    assert pickle.loads(pickle.dumps(secret)) == secret


@pytest.mark.parametrize("text", ["", "hf_abc def", "1TOKEN", "sk-proj-123", "TOKEN=1"])
def test_a_secret_takes_the_name_of_a_variable_and_does_not_repeat_what_else_it_is_given(text: str) -> None:
    with pytest.raises(ValueError, match="name of an environment variable") as caught:
        Secret(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("text", ["ghp_" + "a" * 36, "hf_" + "B1" * 17, "AKIA" + "Q" * 16])
def test_a_token_in_the_place_of_a_variables_name_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"has the form of an? .*Export the value under a name") as caught:
        Secret(text)
    assert text not in str(caught.value)


def test_the_value_is_there_inside_the_block_in_every_thread_and_nowhere_else() -> None:
    secret = Secret("MARIN_TEST_TOKEN")
    seen: list[str] = []
    with available(SecretValues({"MARIN_TEST_TOKEN": VALUE})):
        thread = threading.Thread(target=lambda: seen.append(secret.value()))
        thread.start()
        thread.join()
        assert "MARIN_TEST_TOKEN" not in os.environ
    assert seen == [VALUE]
    with pytest.raises(StepError, match="only inside a step that has it among its arguments"):
        secret.value()


def test_secrets_are_found_at_any_depth_with_their_field() -> None:
    arguments = {"config": Inner(({"hub": Secret("A")}, {"git": Secret("B")})), "token": Secret("C"), "n": 1}
    assert secrets_in(arguments) == [
        ("config.tokens[0].hub", Secret("A")),
        ("config.tokens[1].git", Secret("B")),
        ("token", Secret("C")),
    ]


def test_missing_variables_are_all_named_with_their_fields() -> None:
    wanted = [("config.hub", Secret("ONE")), ("config.git", Secret("TWO")), ("config.ok", Secret("OK"))]
    with pytest.raises(StepError) as caught:
        secret_values(wanted, {"OK": VALUE, "TWO": "abc"})
    assert "config.hub needs the environment variable ONE: set it" in str(caught.value)
    assert "config.git needs the environment variable TWO, whose value has fewer than 6 characters" in str(caught.value)
    assert "config.ok" not in str(caught.value)


def test_values_on_their_way_print_their_names_only() -> None:
    values = SecretValues({"A_TOKEN": VALUE}, {"AWS_SECRET_ACCESS_KEY": "very-secret-key"}, {"FILE": "content-xyz"})
    for text in (repr(values), str([values]), f"{values}"):
        assert "SecretValues(AWS_SECRET_ACCESS_KEY, A_TOKEN, FILE)" in text
        assert VALUE not in text
    again = pickle.loads(pickle.dumps(values))
    assert (again.values, again.environment, again.files) == (values.values, values.environment, values.files)
    with pytest.raises(StepError, match="at most 65536"):
        SecretValues({"A": "x" * 70_000}).check_size("the step")


def test_known_values_are_masked_in_every_form_in_which_texts_hold_them() -> None:
    awkward = 'pa"ss\\wörd/&x'
    know([awkward])
    for text in (awkward, repr([awkward]), json.dumps({"a": awkward}), "https://x/?t=pa%22ss%5Cw%C3%B6rd%2F%26x"):
        assert "***" in redact(text)
        assert "wörd" not in redact(text)
        assert "w%C3%B6rd" not in redact(text)


def test_each_line_of_a_private_key_is_masked() -> None:
    lines = [f"{number}ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" for number in range(3)]
    know(["-----BEGIN KEY-----\n" + "\n".join(lines) + "\n-----END KEY-----\n"])
    assert redact(f"the second line: {lines[1]}.") == "the second line: ***."


def test_what_is_too_short_to_be_told_from_ordinary_text_is_left_alone() -> None:
    know(["test", ""])
    assert redact("a test of tests") == "a test of tests"


@pytest.mark.parametrize("another", [False, True], ids=["alone", "over another factory of records, as Ray has one"])
def test_log_records_and_output_are_masked_for_every_handler(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    factory = (lambda *given, **named: logging.LogRecord(*given, **named)) if another else logging.LogRecord
    monkeypatch.setattr(logging, "_logRecordFactory", factory)
    logger = logging.getLogger("marin.test.secrets")
    handler = logging.FileHandler(tmp_path / "log")
    logger.addHandler(handler)
    know([VALUE])
    try:
        with redacting_output(), redacting_output():
            logger.warning("token %s", VALUE)
            try:
                raise ValueError(f"denied: {VALUE}")
            except ValueError:
                logger.exception("failed")
            print("printed", VALUE)
            print(VALUE, file=sys.stderr)
    finally:
        logger.removeHandler(handler)
        handler.close()
    text = (tmp_path / "log").read_text()
    out, err = capfd.readouterr()
    assert "token ***" in text
    assert "ValueError: denied: ***" in text
    assert out == "printed ***\n"
    assert VALUE not in text + out + err
    assert logging.getLogRecordFactory() is factory


def test_a_json_value_that_holds_a_secret_is_refused() -> None:
    know([VALUE])
    refuse_exposed({"a": ["fine"]}, "the record")
    with pytest.raises(StepError, match="the record of x would hold the value of a secret") as caught:
        refuse_exposed({"a": [f"user:{VALUE}"]}, "the record of x")
    assert not exposes(str(caught.value))


def test_store_credentials_are_set_around_the_work_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://before")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    driver = {
        "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-driver",
        "AWS_ENDPOINT_URL": "http://me:pass-of-proxy@127.0.0.1:1",
        "OTHER": "not sent",
    }
    credentials = store_credentials(driver)
    assert "OTHER" not in credentials.environment
    assert redact("s3cr3t-of-the-driver pass-of-proxy") == "*** ***"
    with available(credentials):
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "s3cr3t-of-the-driver"
        assert os.environ["AWS_ENDPOINT_URL"] == driver["AWS_ENDPOINT_URL"]
    assert os.environ["AWS_ENDPOINT_URL"] == "http://before"
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


def test_what_fsspec_reads_once_reaches_it_in_a_worker_that_has_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec.config

    monkeypatch.delenv("FSSPEC_GS_TOKEN", raising=False)
    before = dict(fsspec.config.conf)
    with available(store_credentials({"FSSPEC_GS_TOKEN": "a-token-of-gs"})):
        assert fsspec.config.conf["gs"]["token"] == "a-token-of-gs"
    assert fsspec.config.conf == before
    assert redact("a-token-of-gs") == "***"


def test_a_file_of_credentials_reaches_the_worker_without_lying_on_a_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = json.dumps({"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhki\n"})
    file = tmp_path / "key.json"
    file.write_text(body)
    credentials = store_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    assert redact("line MIIEvQIBADANBgkqhki") == "line ***"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with available(credentials):
        assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == str(file)
    file.unlink()
    with available(credentials):
        path = Path(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
        assert path != file
        assert path.read_text() == body
        assert path.read_text() == body
    assert not path.exists()
    with pytest.raises(StepError, match=r"GOOGLE_APPLICATION_CREDENTIALS names the file .*key\.json"):
        store_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})


def test_names_of_secrets_are_told_by_their_words() -> None:
    assert all(map(looks_secret, ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "db_password", "AWS_SECRET_ACCESS_KEY")))
    assert not any(map(looks_secret, ("TOKENIZERS_PARALLELISM", "KEYBOARD", "AWS_REGION", "STORAGE_EMULATOR_HOST")))
