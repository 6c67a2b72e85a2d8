"""The notebooks on a machine that is not ours: other torch, other NumPy, no GPU, another folder.

A virtual environment holds another NumPy, another torch, and of the rest only what the lessons'
extras ask for. The first cell of the notebooks installs the release there, in a kernel, as on Colab.

The wheels of most torch releases bring CUDA and 5 GB along. So by default the environment's own
torch is copied under another version number: pip decides by that number alone, and its files are
compared byte for byte. `FOURVIEWS_OTHER_TORCH=VERSION` installs that version from the package
index instead. One lesson of each part runs; `FOURVIEWS_ALL_LESSONS=1` runs them all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from packaging.requirements import Requirement

import numbering
import settings
import write_notebooks

from .environments import (
    ROOT,
    assert_no_checkout,
    empty_environment,
    needed,
    run,
    show_packages,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Within the bounds, and what Colab has had: the oldest that each Python can run.
NUMPY = "2.0.2" if sys.version_info < (3, 13) else "2.1.3"
RELABELLED_TORCH = "2.9.1+cpu"
OTHER_TORCH = os.environ.get("FOURVIEWS_OTHER_TORCH", "")
KEPT = ("torch", "numpy")


def chosen_lessons() -> list[str]:
    names = sorted(path.stem for path in (ROOT / "lessons_src").glob("*.md"))
    if os.environ.get("FOURVIEWS_ALL_LESSONS") == "1":
        return names
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.split("_")[0], name)
    return list(first.values())


def copy_torch(packages: Path, version: str) -> None:
    """This environment's torch, whole, as if it were another version of it."""
    torch = metadata.distribution("torch")
    for top in sorted({file.parts[0] for file in torch.files or []} - {".."}):
        old = Path(torch.locate_file(top))
        name = f"torch-{version}.dist-info" if top.endswith(".dist-info") else top
        # Compiled files come along: sources keep their times, so that these stay good.
        shutil.copytree(old, packages / name, copy_function=link)
    info = f"torch-{version}.dist-info"
    replace(packages / info / "METADATA", f"Version: {torch.version}", f"Version: {version}")
    replace(packages / info / "RECORD", f"torch-{torch.version}.dist-info", info)
    replace(packages / "torch" / "version.py", f"'{torch.version}'", f"'{version}'")


def link(source: str, target: str) -> None:
    """A second name for a file, where the file system can; 700 MB need not be written."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path.name} has no {old}"
    path.unlink()  # or the file that it is linked with would change, too
    path.write_text(text.replace(old, new), encoding="utf-8")


def recorded(packages: Path, name: str) -> set[Path]:
    """The files that a package says it consists of, but for scripts and bytecode."""
    (package,) = metadata.distributions(name=name, path=[str(packages)])
    files = {Path(file) for file in package.files or []}
    return {file for file in files if not {"..", "__pycache__"} & {*file.parts}}


def fingerprints(packages: Path) -> dict[str, str]:
    """Hashes of all files of torch and NumPy, by their names.

    All folders that belong to them are searched, `torchgen` too: a file that was added counts.
    """
    found = {}
    for top in sorted({file.parts[0] for kept in KEPT for file in recorded(packages, kept)}):
        for path in sorted([packages / top, *(packages / top).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                with open(path, "rb") as handle:
                    digest = hashlib.file_digest(handle, "blake2b").hexdigest()
                found[path.relative_to(packages).as_posix()] = digest
    return found


@dataclass
class Machine:
    """A virtual environment whose kernel runs notebooks, in folders of its own."""

    folder: Path
    python: Path
    packages: Path

    def execute(self, notebook: nbformat.NotebookNode, folder: Path) -> None:
        """Run all cells in one kernel, whose working directory is `folder`."""
        specification = {
            "argv": [str(self.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Another machine",
            "language": "python",
        }
        kernel = self.folder / "kernels" / "other"
        kernel.mkdir(parents=True, exist_ok=True)
        (kernel / "kernel.json").write_text(json.dumps(specification), encoding="utf-8")
        ours = ("PYTHONPATH", "MPLBACKEND", "FOURVIEWS_BOOK_BUILD", "FOURVIEWS_DATA")
        environment = {key: value for key, value in os.environ.items() if key not in ours}
        environment |= {
            "CUDA_VISIBLE_DEVICES": "",
            "FOURVIEWS_CACHE": str(self.folder / "cache"),
            "FOURVIEWS_OFFLINE": "1",
            "IPYTHONDIR": str(self.folder / "ipython"),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        manager = AsyncKernelManager(
            kernel_name="other",
            kernel_spec_manager=KernelSpecManager(
                kernel_dirs=[str(self.folder / "kernels")], ensure_native_kernel=False
            ),
        )
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=600,
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env=environment)

    def version(self, name: str) -> str:
        """What pip takes for the version; importing would take longer and say the same."""
        code = (
            "from importlib import metadata, util;"
            f"print(metadata.version({name!r}), util.find_spec({name!r}).origin)"
        )
        done = run(self.python, "-c", code, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        version, file = done.stdout.split(maxsplit=1)
        assert Path(file).is_relative_to(self.packages), f"{name} is not this environment's own"
        return version


@dataclass
class Installed:
    """A machine after the first cell, and what was there before."""

    machine: Machine
    cell: nbformat.NotebookNode
    imported: nbformat.NotebookNode
    versions: dict[str, str]
    files: dict[str, str]


@pytest.fixture(scope="module")
def installed(release: settings.Settings, tmp_path_factory) -> Installed:
    folder = tmp_path_factory.mktemp("colab")
    python, packages = empty_environment(folder / "venv")
    extras = PROJECT["optional-dependencies"]
    others = needed([*PROJECT["dependencies"], *extras["lessons"], *extras["data"]])
    show_packages(
        [there for name, there in others.items() if name not in KEPT], packages, folder / "others"
    )
    wanted = [f"numpy=={NUMPY}"] + ([f"torch=={OTHER_TORCH}"] if OTHER_TORCH else ["--no-deps"])
    done = run(python, "-m", "pip", "install", "-q", "--no-compile", *wanted, cwd=folder)
    assert done.returncode == 0, done.stderr
    if not OTHER_TORCH:
        copy_torch(packages, RELABELLED_TORCH)
    assert_no_checkout(python, folder)
    machine = Machine(folder, python, packages)
    versions = {name: machine.version(name) for name in KEPT}
    files = fingerprints(packages)
    cell = nbformat.v4.new_code_cell(write_notebooks.install_cell(release))
    imported = nbformat.v4.new_code_cell(
        "import fourviews, torch, numpy\n"
        "print(fourviews.__file__)\nprint(torch.__version__)\nprint(numpy.__version__)"
    )
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    machine.execute(nbformat.v4.new_notebook(cells=[cell, imported]), elsewhere)
    return Installed(machine, cell, imported, versions, files)


def test_the_versions_before_are_others_within_the_bounds(installed):
    for line in PROJECT["dependencies"]:
        requirement = Requirement(line)
        if requirement.name in KEPT:
            version = installed.versions[requirement.name]
            assert requirement.specifier.contains(version)
            assert version != metadata.version(requirement.name)


@pytest.mark.parametrize("name", KEPT)
def test_every_file_that_a_package_lists_is_compared(installed, name):
    files = {file.as_posix() for file in recorded(installed.machine.packages, name)}
    assert f"{name}/__init__.py" in files
    assert files <= installed.files.keys()


def test_the_first_cell_prints_one_line(installed, release):
    (output,) = installed.cell.outputs
    assert (output.output_type, output.name) == ("stream", "stdout")
    assert output.text == f"Installed fourviews {release.tag}.\n"


def test_torch_and_numpy_are_untouched(installed):
    machine = installed.machine
    assert {name: machine.version(name) for name in KEPT} == installed.versions
    after = fingerprints(machine.packages)
    assert after.keys() == installed.files.keys()
    assert after == installed.files


def test_the_library_can_be_imported_at_once(installed):
    """In the kernel that installed it, from its own folder, beside the same torch and NumPy."""
    (output,) = installed.imported.outputs
    file, torch, numpy = output.text.split()
    assert Path(file).is_relative_to(installed.machine.packages)
    assert {"torch": torch, "numpy": numpy} == installed.versions


@pytest.fixture(scope="module")
def notebooks(release) -> dict[str, str]:
    return write_notebooks.render(ROOT, release)


@pytest.mark.parametrize("name", chosen_lessons())
def test_a_notebook_runs_from_top_to_bottom(installed, notebooks, name, tmp_path):
    notebook = nbformat.reads(notebooks[f"{name}.ipynb"], as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code.append(nbformat.v4.new_code_cell("print(torch.cuda.is_available(), torch.__version__)"))
    notebook.cells.append(code[-1])
    installed.machine.execute(notebook, tmp_path)
    assert code[0].outputs[0].text == "fourviews is installed.\n"
    # All of the lesson, between the cell that installs and the one that was added here.
    cells = numbering.read_book(ROOT).lessons[name].cells(solutions=False)
    assert [cell.source for cell in code[1:-1]] == [cell.source for cell in cells]
    for cell in code:
        assert cell.execution_count, "a cell did not run"
        for output in cell.outputs:
            assert output.output_type != "error"
            assert "ERROR" not in str(output.get("text", ""))
    assert code[-1].outputs[0].text.split() == ["False", installed.versions["torch"]]
    assert list(tmp_path.iterdir()) == [], "the lesson leaves files behind"
