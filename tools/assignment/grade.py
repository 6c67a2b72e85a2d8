"""Grade a folder of notebooks with otter-grader: offline, without Docker, one row a submission.

    python grade.py SUBMISSIONS
    python grade.py SUBMISSIONS --output scores.csv --timeout 600

SUBMISSIONS holds notebooks, or a folder for each student. Every entry of it gets a row in the table,
also one that holds no notebook or whose notebook cannot be graded: the column `status` says why, and
its points stay empty, for a person to look at. What each check had to say is kept beside the table,
a JSON file for each submission. Points that the rubric gives are not in the table.

The notebooks run with the rights of whoever starts this program.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
START = "from otter.cli import cli; cli()"


def exercises(autograder: Path) -> list[str]:
    """Labels of the exercises that the bundle has tests for."""
    with zipfile.ZipFile(autograder) as bundle:
        found = (re.fullmatch(r"tests/(.+)\.py", name) for name in bundle.namelist())
        return sorted(match.group(1) for match in found if match)


def submissions(folder: Path) -> list[tuple[str, Path | None]]:
    """Name and notebook of each submission; None for an entry without a notebook."""
    found: list[tuple[str, Path | None]] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        notebooks = [entry] if entry.is_file() and entry.suffix.lower() == ".ipynb" else []
        if entry.is_dir():
            notebooks = [
                path
                for path in sorted(entry.rglob("*"))
                if path.is_file()
                and path.suffix.lower() == ".ipynb"
                and not any(part.startswith(".") for part in path.relative_to(folder).parts)
            ]
        for notebook in notebooks:
            found.append((notebook.relative_to(folder).as_posix(), notebook))
        if not notebooks:
            found.append((entry.name, None))
    return found


def prepared(notebook: Path, labels: list[str]) -> str:
    """The notebook as text, ready to be graded; ValueError if it is none.

    An exercise is graded at its check cell, which carries a mark for otter. Where an editor has
    dropped the mark, the last cell that calls the check gets it: without one, the exercise would be
    graded after the last cell, when its names may mean something else. The name of the kernel is
    that of the student's machine, so it is replaced.
    """
    try:
        content = json.loads(notebook.read_text(encoding="utf-8-sig"))
        marks: dict[str, list[int]] = {label: [] for label in labels}
        calls: dict[str, list[int]] = {label: [] for label in labels}
        for position, cell in enumerate(content["cells"]):
            source = cell["source"]
            text = source if isinstance(source, str) else "".join(source)
            mark = cell.setdefault("metadata", {}).pop("otter", None)
            if cell["cell_type"] != "code":
                continue
            for label in mark["tests"] if isinstance(mark, dict) and "tests" in mark else []:
                if label in marks:
                    marks[label].append(position)
            for label in re.findall(r"^\s*course\.check\(\s*[\"']([^\"']+)[\"']", text, re.M):
                if label in calls:
                    calls[label].append(position)
        for label in labels:
            for position in marks[label] or calls[label][-1:]:
                metadata = content["cells"][position]["metadata"]
                metadata.setdefault("otter", {"tests": []})["tests"].append(label)
        content.setdefault("metadata", {})["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not a notebook ({type(error).__name__}: {error})") from error
    return json.dumps(content)


def run(command: list[str], folder: Path, seconds: float) -> tuple[int | None, str]:
    """Exit status and output; None and nothing more when it took too long and was ended."""
    environment = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1", PYTHONUTF8="1")
    environment.pop("FOURVIEWS_BOOK_BUILD", None)
    environment.setdefault("OMP_NUM_THREADS", "1")
    # A group of its own: the kernel that the notebook runs in must end with it.
    group = {"start_new_session": True} if os.name == "posix" else {}
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, **group
        )
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                if os.name == "posix":
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
                process.wait()
    return status, log.read_text(encoding="utf-8", errors="replace")


def grade(notebook: Path, autograder: Path, labels: list[str], seconds: float) -> dict:
    """The results as otter writes them; ValueError with the reason if there are none."""
    with tempfile.TemporaryDirectory(prefix="grade-") as name:
        folder = Path(name)
        (folder / "out").mkdir()
        (folder / "submission.ipynb").write_text(prepared(notebook, labels), encoding="utf-8")
        shutil.copy(autograder, folder / "autograder.zip")
        command = [sys.executable, "-c", START, "run", "submission.ipynb", "--no-logo"]
        status, log = run([*command, "-a", "autograder.zip", "-o", "out"], folder, seconds)
        if status is None:
            raise ValueError(f"no end after {seconds:g} s")
        path = folder / "out" / "results.json"
        if not path.exists():
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            raise ValueError(f"otter run failed: {lines[-1] if lines else f'status {status}'}")
        results = json.loads(path.read_text(encoding="utf-8"))
    scored = {test["name"] for test in results["tests"] if "score" in test}
    missing = [label for label in labels if label not in scored]
    if missing:
        words = " ".join(test.get("output", "") for test in results["tests"])
        reason = [line.strip() for line in words.splitlines() if line.strip()]
        raise ValueError(f"no result for {', '.join(missing)}: {reason[-1] if reason else ''}")
    return results


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("submissions", type=Path, help="folder of notebooks or of folders")
    parser.add_argument("--output", type=Path, default=Path("scores.csv"), help="the table")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one submission")
    parser.add_argument("--jobs", type=int, default=1, help="submissions graded side by side")
    parser.add_argument("--autograder", type=Path, default=HERE / "autograder.zip")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: need 1 or more")
    if not options.submissions.is_dir():
        parser.error(f"{options.submissions} is no folder")
    if not options.autograder.is_file():
        parser.error(f"{options.autograder} is missing")
    labels = exercises(options.autograder)
    found = submissions(options.submissions)
    if not found:
        parser.error(f"{options.submissions} is empty")
    details = options.output.with_suffix("")
    details.mkdir(parents=True, exist_ok=True)

    def result(position: int) -> tuple[list, bool]:
        """The row of one submission, and whether it was graded."""
        name, notebook = found[position]
        try:
            if notebook is None:
                raise ValueError("no notebook in it")
            results = grade(notebook, options.autograder.resolve(), labels, options.timeout)
        except (ValueError, OSError) as error:
            return [name, f"not graded: {error}", "", "", *("" for _ in labels)], False
        plain = re.sub(r"[^\w.-]+", "_", name)
        kept = details / f"{position + 1:03d}-{plain}.json"
        kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        tests = {test["name"]: test for test in results["tests"] if "score" in test}
        scores = [tests[label]["score"] for label in labels]
        possible = sum(tests[label]["max_score"] for label in labels)
        return [name, "graded", round(sum(scores), 4), round(possible, 4), *scores], True

    ungraded = 0
    with (
        options.output.open("w", encoding="utf-8", newline="") as handle,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        table = csv.writer(handle)
        table.writerow(["submission", "status", "total", "possible", *labels])
        for row, graded in pool.map(result, range(len(found))):
            ungraded += not graded
            table.writerow(row)
            handle.flush()  # what is graded stays, whatever happens later
            print(f"{row[0]}: {row[1]}{f', {row[2]} of {row[3]}' if graded else ''}", flush=True)
    print(f"{options.output}: {len(found)} submissions, {ungraded} of them not graded")
    return 1 if ungraded else 0


if __name__ == "__main__":
    raise SystemExit(main())
