"""Find the files that ship beside the code."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def lua_dir() -> Traversable:
    """Return the folder of the Lua scripts: inside an installed package, beside it in a source tree.

    Raises FileNotFoundError where the installation lacks them.
    """
    candidates: tuple[Traversable, ...] = (files("rzsched") / "lua", Path(__file__).parent.parent / "lua")
    for folder in candidates:
        if (folder / "enqueue.lua").is_file():
            return folder
    looked = " nor ".join(str(folder) for folder in candidates)
    raise FileNotFoundError(
        f"rzsched is installed without its Lua scripts: neither {looked} holds enqueue.lua"
    )
