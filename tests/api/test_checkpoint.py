"""May a job go on from this checkpoint? If not, both values are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spare.api.checkpoint import Data, Manifest, Name, Terms, mismatch, newest, refusal, tag_of

COUNTED = Terms(groups=4, micro_batches=8, micro_batch_size=2, seed=7, data=(Data("text", 1000),))
BY_SHARD = Terms(groups=4, micro_batches=8, micro_batch_size=None, seed=7)


@pytest.mark.parametrize("terms", [COUNTED, BY_SHARD])
def test_the_same_job_goes_on(terms: Terms) -> None:
    """Nothing has changed."""
    assert refusal(terms, terms) is None


@pytest.mark.parametrize(
    "change",
    [
        {"groups": 8, "micro_batches": 4},
        {"groups": 3},
        {"micro_batches": 5},
        {"micro_batch_size": 7},
    ],
)
def test_another_division_goes_on_where_samples_are_counted(change: dict[str, int]) -> None:
    """The position is a number of samples, so the next sample is the next one, whoever computes it in which step."""
    assert refusal(COUNTED, replace(COUNTED, **change)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"groups": 8, "micro_batches": 4}, ("spec.groups is 8, and the checkpoint's is 4", "microBatches is 4")),
        ({"micro_batches": 9}, ("spec.microBatches is 9, and the checkpoint's is 8",)),
        ({"micro_batch_size": 2}, ("micro_batch_size is 2, and the checkpoint's is None",)),
    ],
)
def test_another_division_is_refused_where_they_are_not(change: dict[str, int], values: tuple[str, ...]) -> None:
    """A script that finds its data by (step, shard, index) would skip some and repeat others."""
    text = refusal(BY_SHARD, replace(BY_SHARD, **change))  # type: ignore[arg-type]

    assert text is not None
    assert all(value in text for value in values)


def test_other_data_or_another_order_are_refused() -> None:
    """With both values."""
    text = refusal(COUNTED, replace(COUNTED, seed=8, data=(Data("text", 999),)))

    assert text is not None
    assert "spec.seed is 8, and the checkpoint's is 7" in text
    assert "text with 999 samples, and the checkpoint's are text with 1000 samples" in text
    assert "not read through session.loader" in str(refusal(COUNTED, replace(COUNTED, data=())))


def test_differing_parameters_are_named() -> None:
    """Shapes, dtypes, what lacks on either side; the first five, and how many more."""
    was = {"a": ((2, 3), "float32"), "b": ((1,), "float32"), "gone": ((4,), "float64")}

    assert mismatch(was, was) is None
    text = mismatch(was, {"a": ((2, 4), "float32"), "b": ((1,), "float16"), "new": ((5,), "float32")})
    assert text == (
        "a is [2, 4] of float32, and the checkpoint's is [2, 3] of float32; b is [1] of float16, and the checkpoint's "
        "is [1] of float32; the checkpoint has gone [4] of float64, which the model lacks; the model has new [5] of "
        "float32, which the checkpoint lacks"
    )
    assert "; and 3 more" in str(mismatch({f"p{i}": ((i,), "float32") for i in range(8)}, {}))


def test_names_are_ordered_by_history_then_step() -> None:
    """And are read back."""
    names = [str(Name(2, 1, "a" * 8)), str(Name(1, 900, "b" * 8)), str(Name(10, 0, "c" * 8))]

    assert newest(names) == names[2]
    assert newest([]) is None
    assert [str(Name.parse(name)) for name in names] == names
    assert tag_of("job/1") != tag_of("job/2")


def test_a_manifest_of_another_format_is_refused() -> None:
    """By a later version, or no manifest at all."""
    text = Manifest(str(Name(1, 2, "0" * 8)), "job", 1, None, COUNTED, 12, {}).to_text()

    assert Manifest.of_text(text).terms == COUNTED
    with pytest.raises(ValueError, match="format is not 1"):
        Manifest.of_text(text.replace('"format": 1', '"format": 2'))
    for other in ("", "[]", "{}", '{"format": 1}', text.replace("terms", "words")):
        with pytest.raises(ValueError, match="not a checkpoint's manifest"):
            Manifest.of_text(other)
