"""The layout's own laws: one import direction, no names that hide others, a wheel that holds every folder."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = ["data_prep", "models", "eval", "train", "proofreel"]
TORCH_FREE = ["data_prep"]


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path):
    """Top-level folders of this project that a file imports, with the module text it asked for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = (node.module or "").split(".")
            if node.level == 2 or (path.parent.name == "proofreel" and parts[0] in ORDER):
                yield parts[0], node.module
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            for name in names:
                if name.startswith("proofreel."):
                    yield name.split(".")[1], name
                else:
                    yield name.split(".")[0], name


@pytest.mark.parametrize("folder", ORDER)
def test_imports_point_one_way(folder):
    allowed = ORDER[: ORDER.index(folder) + 1]
    for path in sources(folder):
        for target, text in imports(path):
            assert target not in ORDER or target in allowed, f"{path.relative_to(ROOT)} imports {text}"


@pytest.mark.parametrize("folder", ORDER[:-1])
def test_library_modules_import_relatively_and_entries_absolutely(folder):
    for path in sources(folder):
        absolute = "proofreel." in " ".join(t for _, t in imports(path) if t)
        is_entry = "__main__" in path.read_text(encoding="utf-8")
        assert absolute == is_entry, f"{path.relative_to(ROOT)}: entries import proofreel.x, modules import ..x"


@pytest.mark.parametrize("folder", ORDER[:-1])
def test_entry_files_define_no_class(folder):
    for path in sources(folder):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            assert not [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)], path


def test_heavy_packages_stay_in_their_folders():
    for folder in ORDER:
        for path in sources(folder):
            found = {target for target, _ in imports(path)}
            if folder == "data_prep":
                assert not found & {"torch", "transformers", "peft", "trl"}, path
            if folder not in ("models", "train"):
                assert not found & {"peft", "bitsandbytes"}, path
            if folder != "train":
                assert not found & {"deepspeed", "trl"}, path


def test_no_module_hides_a_standard_or_installed_one():
    # A script's own folder comes first on sys.path, so eval/statistics.py would break `import statistics`.
    taken = set(sys.stdlib_module_names) | (set(packages_distributions()) - {"proofreel", *ORDER, "configs", "tests"})
    for folder in ORDER[:-1]:
        for path in sources(folder):
            assert path.stem == "__init__" or path.stem not in taken, path.relative_to(ROOT)


def test_every_folder_is_in_the_wheel_and_under_one_name():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    listed = settings["package-dir"]
    assert set(settings["packages"]) == set(listed)
    for folder in [*ORDER, "configs"]:
        packages = {p.parent.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("__init__.py")}
        assert packages <= set(listed.values()), f"not listed in pyproject: {packages - set(listed.values())}"


def test_every_module_says_what_it_is_for():
    for folder in [*ORDER, "examples"]:
        for path in sources(folder):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.relative_to(ROOT)


def test_import_and_help_load_no_torch():
    code = "import sys, proofreel, proofreel.cli; proofreel.cli.main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "calibrate" in done.stdout


@pytest.mark.parametrize(
    "command", ["build", "predict", "calibrate", "report", "export", "selftest", "ask", "score", "serve"]
)
def test_every_command_explains_itself_without_torch(command):
    code = (
        "import sys, proofreel.cli\n"
        "try: proofreel.cli.main([sys.argv[1], '--help'])\n"
        "except SystemExit as e: sys.exit(e.code or ('torch' in sys.modules) * 3)"
    )
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


def test_public_names_are_those_listed():
    import proofreel

    assert proofreel.__all__ == sorted(proofreel.__all__)
    for name in proofreel.__all__:
        assert getattr(proofreel, name).__name__ == name
    with pytest.raises(AttributeError, match="public names"):
        _ = proofreel.Nothing
