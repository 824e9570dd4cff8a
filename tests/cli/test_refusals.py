"""What `spare run` and `spare validate` refuse, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from spare.api.exit_codes import ExitCode
from spare.cli.main import COMMANDS, main
from spare.cli.script import by_group, read

COMMAND = "spec.template.spec.containers[0].command"


def job_file(folder: Path, **spec: object) -> Path:
    container = {"name": "trainer", "command": ["sleep", "600"], "env": [{"name": "SECRET", "valueFrom": {"x": "y"}}]}
    base = {"groups": 4, "redundancy": 2, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "spare.training/v1alpha1", "kind": "SPAReJob", "metadata": {"name": "j"}, "spec": base | spec}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def spare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], terminal_width=200)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kill", "4@20"], "--kill 4@20: the job has the groups 0 to 3 only"),
        (["--kill", "1.1@20"], "--kill 1.1@20: a group has the ranks 0 to 0 only"),
        (["--kill-group", "9@1:step"], "--kill-group 9@1: the job has the groups 0 to 3 only"),
        (["--kill", "1@20:commit"], "the point 'commit' is none of compute, reduce, barrier, step, regroup"),
        (["--kill", "1@20:"], "the point '' is none of"),
        (["--freeze", "1"], "'1' is not G[.R]@S[:POINT], such as 2@20:compute (group 2 in step 20)"),
        (["--kill", "-1@3"], "is not G[.R]@S[:POINT]"),
        (["--kill", "1@3=2"], "is not G[.R]@S[:POINT]"),
        (["--pause", "1@3=fast"], "is not G[.R]@S[:POINT][=SECONDS], such as 2@20:compute=1.5"),
        (["--env", "NAME"], "'NAME' is not NAME=VALUE"),
        (["--env", "SPARE_TOKEN=x"], "SPARE_TOKEN is set by this program"),
        (["--bind", "localhost"], "'localhost' is not an IP address"),
        (["--bind", "203.0.113.9"], "nothing can listen on 203.0.113.9"),
        (["--set", "spec.groups"], "is not PATH=VALUE"),
        (["--set", "spec.groups=[1"], "is not YAML"),
        (["--set", "spec.redundancy=5"], "spec.redundancy must be auto or at most spec.groups (4)"),
        (["--set", "spec.redundance=2"], "spec.redundance is not a field of spec"),
        (["--set", "spec.template.spec.containers[1].name=x"], "the job file has no place for it"),
        (["--set", "spec.groups.most=1"], "the job file has no place for it"),
        (["--set", f"{COMMAND}=[no-such-program]"], "'no-such-program' is not an executable that can be found"),
        (["--set", f"{COMMAND}=[./train.sh]"], "'./train.sh' is not an executable"),
        (["--set", "spec.template.spec.containers[0].workingDir=nowhere"], "does not exist"),
        (["--set", COMMAND + r'=["sh", "a\0b"]'], r"its command 'a\x00b' holds a character that no process can"),
        (["--set", r'spec.checkpoint.path="a\0b"'], "spec.checkpoint.path '"),
        (["--set", "spec.checkpoint.path=job.yaml"], "job.yaml' must be a folder, or none yet;"),
        (["--set", "spec.checkpoint.path=job.yaml/a/b"], "job.yaml is no folder"),
        (["--set", "spec.checkpoint.path=/proc/sys/a"], "must be a folder that can be written; /proc/sys cannot"),
    ],
)
def test_a_wrong_option_starts_nothing(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """Exit code 2, the complaint in plain words, and no run folder."""
    given = [] if "SECRET" in complaint else ["--env", "SECRET=1"]
    result = spare("run", job_file(tmp_path), "--runs", tmp_path / "runs", *given, *arguments)

    assert result.exit_code == ExitCode.USAGE
    assert complaint in " ".join(result.output.split())
    assert not (tmp_path / "runs").exists()


def test_a_variable_that_only_a_cluster_fills_must_be_given(tmp_path: Path) -> None:
    """A local run cannot read a Secret, and says so."""
    result = spare("run", job_file(tmp_path), "--runs", tmp_path / "runs")

    assert result.exit_code == ExitCode.USAGE
    assert "only a cluster can fill SECRET" in result.output


@pytest.mark.parametrize("command", ["run", "validate"])
def test_all_problems_of_a_job_file_are_told_at_once(tmp_path: Path, command: str) -> None:
    """Each with its line and its place."""
    result = spare(command, job_file(tmp_path, groups=0, microBatches="8", colour="red"))

    assert result.exit_code == ExitCode.USAGE
    for place in ("spec.groups", "spec.microBatches", "spec.colour"):
        assert place in result.output
    assert "Usage:" not in result.output  # the command line was right
    assert "line 6" in result.output


def test_an_overridden_field_is_told_with_its_new_value(tmp_path: Path) -> None:
    """And with the line of what it takes the place of."""
    result = spare("validate", job_file(tmp_path), "--set", "spec.redundancy=9")

    assert "spec.redundancy must be" in result.output
    assert "but is 9" in result.output
    assert "by default" not in result.output
    assert "line 7" in result.output


def test_validate_prints_every_value_that_holds(tmp_path: Path) -> None:
    """Defaults filled in, overrides applied; the output is a job file again."""
    result = spare("validate", job_file(tmp_path), "--set", "spec.detection.heartbeat=500ms", "--set", "spec.seed=7")

    assert result.exit_code == 0
    job = yaml.safe_load(result.stdout)
    detection = {"heartbeat": "500ms", "deadAfter": "5s", "hangAfter": "5m", "slowAfter": "30s", "startTimeout": "5m"}
    assert job["spec"]["detection"] == detection
    assert job["spec"]["seed"] == 7
    (tmp_path / "job.yaml").write_text(result.stdout)
    assert yaml.safe_load(spare("validate", tmp_path / "job.yaml").stdout) == job


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """No traceback for the wrong file."""
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe\x00")

    result = spare("validate", path)

    assert result.exit_code == ExitCode.USAGE
    assert "cannot be read" in result.output


def test_a_script_reaches_each_worker_as_it_reads_it() -> None:
    """Several failures of one group are one list; a pause has seconds, by default two."""
    script = [
        read("kill", "1@20"),
        read("kill", "1@35:reduce"),
        read("kill-group", "0@3:barrier"),
        read("pause", "2@5", timed=True),
        read("pause", "2@6:step=0.5", timed=True),
        read("kill", "3.1@7:reduce"),
    ]

    assert by_group(script, 4, ranks=2) == {
        0: "kill-group@3:barrier",
        1: "kill@20:compute,kill@35:reduce",
        2: "pause@5:compute=2,pause@6:step=0.5",
        3: "kill.1@7:reduce",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command: str) -> None:
    """The table of lazy commands names things that exist."""
    result = spare(command, "--help")

    assert result.exit_code == 0
    assert f"Usage: main {command} " in result.output


def test_the_help_says_what_a_step_is_and_lists_the_points() -> None:
    """Counting from 0 must not be guessed."""
    text = " ".join(spare("run", "--help").output.split())

    assert "counted from 0" in text
    for point in ("compute", "reduce", "barrier", "step", "regroup"):
        assert f" {point} " in text


def test_an_unknown_command_is_refused() -> None:
    """By name."""
    result = spare("walk")

    assert result.exit_code == ExitCode.USAGE
    assert "walk" in result.output
