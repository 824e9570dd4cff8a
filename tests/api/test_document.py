"""YAML is read as Kubernetes reads it, and nothing in it passes in silence."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spare.api.document import read_document
from spare.api.problems import JobFileError


def refusal(text: str) -> tuple[int | None, str]:
    """Line and message of the first problem."""
    with pytest.raises(JobFileError) as caught:
        read_document(text)
    problem = caught.value.problems[0]
    return problem.line, problem.message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "it is empty"),
        ("# nothing\n", None, "it is empty"),
        ("---\n", 1, "it holds nothing"),
        ("- a\n", 1, "it holds a list"),
        ("job\n", 1, "it holds text"),
        ("a: 1\n---\nb: 2\n", 3, "a second document begins"),
        ("a: 1\nb: 2\na: 3\n", 3, "a must be given once: it is given in line 1 already"),
        ("a: {b: 1, b: 2}\n", 1, "a.b must be given once"),
        ("a:\n  b: [1\n", 3, "not YAML"),
        ("a: 'b\n", 2, "not YAML"),
        ("\ta: 1\n", 1, "not YAML"),
        ("a: 1\nb: \x07\n", 2, "the character"),
        ("a: *b\n", 1, "not YAML"),
        ("a: {1: x}\n", 1, "put it in quotes"),
        ("a: {yes: x}\n", 1, "put it in quotes"),
        ("? [a]\n: 1\n", 1, "put it in quotes"),
        ("a: .nan\n", 1, "JSON has no such number"),
        ("a: -.Inf\n", 1, "JSON has no such number"),
        ("a: !!binary aGk=\n", 1, "put it in quotes"),
        ("a: !!python/object:os.system x\n", 1, "put it in quotes"),
        ("a: !!set {x, y}\n", 1, "put it in quotes"),
        ("a: !!int x\n", 1, "cannot be read"),
        ("a: !!bool x\n", 1, "cannot be read"),
        ("a: 0b_\n", 1, "cannot be read"),
        (f"a: {'9' * 5000}\n", 1, "cannot be read"),
        ("a: &b [*b]\n", None, "refer to themselves"),
        ("[" * 100_000, None, "nested too deeply"),
    ],
)
def test_what_is_no_single_plain_mapping_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    """Each slip is one sentence that says what and where."""
    found, message = refusal(text)

    assert words in message
    assert found == line


def test_aliases_that_would_fill_the_memory_are_refused() -> None:
    """Nine lines that stand for a billion words are counted, not written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]

    assert "stand for too much text" in refusal("\n".join(lines))[1]


def test_honest_aliases_and_merges_are_read() -> None:
    """Anchors are how people avoid repeating themselves; a key beside the merge wins, as in every YAML reader."""
    document = read_document("base: &base {x: 1, y: 2}\nhere: {<<: *base, y: 3}\nthere: *base\n")

    assert document.data == {"base": {"x": 1, "y": 2}, "here": {"x": 1, "y": 3}, "there": {"x": 1, "y": 2}}


def test_dates_stay_text() -> None:
    """Kubernetes has no dates, so `2020-01-01` in a template is what it says."""
    assert read_document("a: 2020-01-01\n").data == {"a": "2020-01-01"}


def test_lines_are_known_for_every_place() -> None:
    """For a place that the text lacks, the line is that of what it is missing from."""
    document = read_document("a:\n  b:\n  - c: 1\n    d: 2\n")

    assert document.line(("a", "b", 0, "d")) == 4
    assert document.line(("a", "b", 0, "missing")) == 3
    assert document.line(("missing",)) == 1
    assert document.has(("a", "b"))
    assert not document.has(("a", "missing"))


@given(st.text(alphabet=st.sampled_from("ab:- \n{}[]&*!?|>'\"#,%@1.<=~\t"), max_size=40))
@example("!<tag:yaml.org,2002:map> a")
@example("a: !!map x")
@example("a: !!str {b: 1}")
@example("<<: 1")
@example("<<: {a: 1}")
@example("a: =")
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in any other way than by a JobFileError."""
    try:
        document = read_document(text)
    except JobFileError as error:
        assert error.problems[0].message  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(document.data, dict)
