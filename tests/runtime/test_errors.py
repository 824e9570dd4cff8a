"""What is told of gloo's errors."""

from __future__ import annotations

import pytest

from spare_runtime.errors import CollectiveFailed, clause

ADVICE = "This is typically caused by a remote worker crashing. Check the logs of the remote worker. GLHF!"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
            f"[127.0.0.1]:11689. {ADVICE}",
            "Connection closed by peer [127.0.0.1]:11689",
        ),
        (
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [fd00::1]:7: Connection reset by peer. "
            + ADVICE,
            "Read error [fd00::1]:7: Connection reset by peer",
        ),
        ("[Errno 111] Connection refused. And more.", "[Errno 111] Connection refused. And more."),
        ("", ""),
    ],
)
def test_what_went_wrong_is_told_without_place_and_advice(text: str, told: str) -> None:
    """Other texts than gloo's stay as they are; the log has all of it."""
    error = CollectiveFailed("the reduction", text)

    assert clause(text) == told
    assert str(error) == f"the reduction: {told}"
    assert error.whole == f"the reduction: {text}"
