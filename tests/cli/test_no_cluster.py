"""What the commands on a cluster say when something is not there, refuses, or does not answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from spare.api.exit_codes import ExitCode
from spare.cli import cluster
from spare.cli.main import main
from tests.cli.served import Served

WRONG_FORM = (["1"], ["job", "one"], ["job", "1", "--no-replacement"], ["job", "--wait", "nan"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain", "job", "4"], "group 4: the job has the groups 0 to 3"),
        (["drain", "nobody", "1"], "no SPAReJob 'nobody' in namespace 'team'"),
        (["drain", "1"], "on a cluster the job is named: spare drain JOB GROUP"),
        (["drain", "job", "one"], "the group 'one' is no number from 0 on"),
        (["drain", "job", "1", "--no-replacement"], "--run and --no-replacement are for local runs"),
        (["suspend", "job", "--wait", "nan"], "'nan' is no number from 0 to"),
        (["status", "nobody"], "no SPAReJob 'nobody' in namespace 'team'"),
        (["status", "job", "-n", "elsewhere"], "in namespace 'elsewhere'"),
        (["status", "job", "--context", "nowhere"], "kubeconfig has no context 'nowhere'"),
    ],
)
def test_what_is_not_there_is_named(served: Served, arguments: list[str], said: str) -> None:
    """In one line where the command line had the right form, else below its usage; and nothing is written."""
    result = served.spare(*arguments)

    assert result.exit_code == ExitCode.USAGE
    assert said in result.output
    assert ("Usage:" in result.output) == (arguments[1:] in WRONG_FORM)
    assert result.output.startswith("Usage:") or len(result.output.splitlines()) == 1
    assert not served.api.writes()


@pytest.mark.parametrize("command", [["status"], ["events"], ["suspend"], ["resume"], ["drain"]])
@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (403, 'sparejobs "job" is forbidden: User "me" cannot get', "the cluster says: Forbidden (403): sparejobs"),
        (401, "Unauthorized", "does not accept this token or certificate"),
        (404, "the server could not find the requested resource", "this cluster has no kind SPAReJob (sparejobs.spare"),
        (
            404,
            "404 page not found",
            "this cluster has no kind SPAReJob (sparejobs.spare.training): install the operator",
        ),
    ],
)
def test_a_refusal_is_one_line(served: Served, command: list[str], status: int, message: str, said: str) -> None:
    """No right, no valid token, no definition: nothing is wrong with the command line, and something was not done."""
    served.api.fail("GET", "/sparejobs/job$", status, message, times=9)
    result = served.spare(*command, "job", *(["1"] if command == ["drain"] else []))

    assert result.exit_code == 1
    assert said in result.output
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1


def test_a_server_that_does_not_answer_is_named(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address, what was asked, and for how long."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        served.kubeconfig.write_text(served.kubeconfig.read_text().replace(served.api.address, address))
        result = served.spare("status", "job")

    assert result.exit_code == 1
    assert result.output.startswith(
        f"Error: no answer from the API server at {address}, asked for 0.5 s: GET /apis/spare"
    )
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no cluster is named: there is no "),
        ("", " is no kubeconfig: "),
        ("[]", " is no kubeconfig: "),
        ("a: [", " is no kubeconfig: "),
        ("\0", " is no kubeconfig: "),
        ("kind: Config", " names no cluster that can be asked: "),
        (
            "{contexts: [{name: a, context: {cluster: b}}], current-context: a, clusters: []}",
            " names no cluster that can",
        ),
    ],
)
def test_a_kubeconfig_that_names_no_cluster_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    """By its own name, in one paragraph, without a traceback."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    result = CliRunner(env={"KUBECONFIG": str(file)}).invoke(main, ["status", "job"], terminal_width=200)

    assert (result.exit_code, type(result.exception)) == (ExitCode.USAGE, SystemExit)
    assert said in result.output
    assert str(file) in result.output
    assert "Usage:" not in result.output


def test_a_context_is_enough_where_none_is_current(served: Served) -> None:
    """As for kubectl."""
    served.kubeconfig.write_text(served.kubeconfig.read_text().replace("current-context: here", ""))

    assert served.spare("status", "job", "--context", "here").exit_code == 0
