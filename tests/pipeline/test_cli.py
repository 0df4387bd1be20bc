"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import toybook
from click.testing import CliRunner

from icml24 import cli
from icml24.pipeline import runner
from icml24.pipeline.runner import Outcome

ALPHA = "book/one/alpha.md"
COMMANDS = ("list", "run", "sweep", "build", "check", "bless", "new", "doctor", "data", "serve")


@pytest.fixture
def invoke(book, monkeypatch):
    """Call the command line in the toy book, in this process."""
    monkeypatch.chdir(book.root)
    return lambda *arguments: CliRunner().invoke(cli.main, arguments)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("data", "fetch")])
def test_help_is_worth_reading(invoke, command):
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert len(result.output.split()) > 25
    if not command:
        assert all(f"\n  {name} " in result.output for name in COMMANDS)


def test_list_before_and_after_runs(invoke, book):
    before = json.loads(invoke("list", "--json").stdout)
    assert [entry["slug"] for entry in before] == ["alpha", "beta"]
    assert before[0]["runs"] == {"quick": {"state": "none"}, "full": {"state": "none"}}
    runner.run(book, ["alpha"])
    toybook.edit(book, ALPHA, "total = ", "raise ValueError\ntotal = ")
    alpha = json.loads(invoke("list", "alpha", "--json").stdout)[0]
    assert (alpha["runs"]["quick"]["state"], alpha["verdicts"]) == ("stale", {"reproduced": 2})
    assert (alpha["title"], alpha["part_title"], alpha["source"]) == ("Alpha rays", "First things", ALPHA)
    assert [item["name"] for item in alpha["parameters"]][:3] == ["profile", "seed", "steps"]
    runner.run(book, ["alpha"])
    alpha = json.loads(invoke("list", "--json").stdout)[0]
    assert alpha["runs"]["quick"]["state"] == "failed"
    table = invoke("list", "alpha").stdout
    assert "how many terms" in table
    assert "Alpha rays" in table
    assert "failed" in table


def test_run_reports_json_failures_and_status(book):
    done = toybook.call(book, "run", "--json", "-p", "seed", "3")
    assert done.returncode == 0
    outcomes = json.loads(done.stdout)
    assert [outcome["status"] for outcome in outcomes] == ["ran", "ran"]
    assert outcomes[0]["overrides"] == {"seed": 3}
    assert outcomes[0]["path"].endswith(f"{outcomes[0]['name']}.ipynb")
    assert done.stderr.count(" ran ") == 2

    toybook.append(book, ALPHA, toybook.code_cell("raise KeyError('[lost]')"))
    done = toybook.call(book, "run")
    assert done.returncode == 1
    assert done.stdout == ""
    failure = done.stderr[done.stderr.index("Chapters that failed") :]
    assert all(
        word in failure
        for word in ("alpha", "[4] raise KeyError", "KeyError: '[lost]'", "alpha.failed.ipynb")
    )
    assert "beta" not in failure
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("run", "alpah"), 1, "did you mean alpha?"),
        (("run", "alpha", "-p", "stepz", "1"), 1, "did you mean steps"),
        (("run", "alpha", "-p", "steps", "many"), 1, "expected a whole number"),
        (("run", "--profile", "fast"), 2, "'quick', 'full'"),
        (("run", "--jobs", "0"), 2, "x>=1"),
        (("run", "--memory-limit", "0"), 2, "x>=1"),
        (("sweep", "alpha"), 2, "Missing option"),
        (("sweep", "alpha", "-p", "steps", "1,x"), 1, "expected a whole number"),
        (("check", "alpah"), 1, "did you mean alpha?"),
        (("bless", "alpah"), 1, "did you mean alpha?"),
        (("data", "fetch", "nanomorph"), 1, "did you mean nanomorphology?"),
        (("data", "verify", "nothing-like-it"), 1, "no data set named"),
        (("build",), 1, "icml24 run"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_mistakes_are_messages(invoke, book, arguments, status, said):
    result = invoke(*arguments)
    assert result.exit_code == status
    assert said in " ".join(result.stderr.split())
    assert not list(book.build.rglob("*.ipynb"))


def test_outside_of_a_book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["list"])
    assert result.exit_code == 1
    assert "no book here" in result.stderr


def test_sweep_prints_its_table_and_files(invoke, monkeypatch, book):
    from icml24.pipeline import sweep as sweeps

    def jobs(book, work, **options):
        return [
            Outcome(j.chapter.slug, "failed", None, error="no", name=j.name, overrides=j.overrides)
            for j in work
        ]

    monkeypatch.setattr(sweeps, "run_jobs", jobs)
    result = invoke("sweep", "alpha", "-p", "steps", "1,2", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(row["steps"], row["status"]) for row in found["rows"]] == [(1, "failed"), (2, "failed")]
    assert Path(found["csv"]).is_file()
    assert Path(found["parquet"]).is_file()
    shown = invoke("sweep", "alpha", "-p", "steps", "1,2").stdout
    assert "steps" in shown
    assert "_build/sweeps/alpha-quick-" in shown


def test_check_lists_problems_with_their_remedy(invoke, monkeypatch):
    from icml24.pipeline import check
    from icml24.pipeline.check import Problem

    found = [Problem("book/one/alpha.md:3", "no [figure]", "Draw one.")]
    monkeypatch.setattr(check, "check", lambda book, slugs: found if slugs != ("beta",) else [])
    result = invoke("check")
    assert (result.exit_code, result.stdout) == (
        1,
        "book/one/alpha.md:3: no [figure]\n    Draw one.\n1 problem\n",
    )
    assert json.loads(invoke("check", "alpha", "--json").stdout) == [
        {"where": "book/one/alpha.md:3", "what": "no [figure]", "fix": "Draw one."}
    ]
    clean = invoke("check", "beta")
    assert (clean.exit_code, clean.stdout) == (0, "0 problems\n")


def test_data_commands_tell_what_is_missing(invoke):
    listed = json.loads(invoke("data", "list", "--json").stdout)
    nano = next(entry for entry in listed if entry["name"] == "nanomorphology")
    assert {file["state"] for file in nano["files"]} == {"missing"}
    assert nano["available"] is False
    assert "icml24 data fetch nanomorphology" in invoke("data", "list").stdout.replace("\n", " ")
    states = json.loads(invoke("data", "verify", "--json").stdout)
    assert {state["state"] for state in states} == {"missing"}


def test_a_disk_that_takes_no_more(book):
    """A limit on file sizes, kept by the system itself: the notebook does not fit, and nothing of it stays."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = toybook.call(book, "run", "alpha", preexec_fn=limit)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "File too large" in said
    assert "Traceback" not in said
    assert list(book.build.rglob("*.ipynb")) + list(book.build.rglob("*.tmp")) == []


def test_a_memory_limit_on_the_command_line(book):
    toybook.append(
        book, ALPHA, toybook.code_cell("block = bytearray(400 * 10**6)\nimport time; time.sleep(20)")
    )
    done = toybook.call(book, "run", "alpha", "--memory-limit", "200")
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "memory limit exceeded" in said
    assert "allowed are 200 MB" in said
