"""Find the App that `module:app` names."""

import importlib
import os
import sys
from typing import Any

from rzsched.app import App
from rzsched.cli.failures import FAILED, WRONG_USAGE, Failure


def load_app(target: str, url: str | None = None, namespace: str | None = None) -> App:
    """Import the App that `module:app` names; the current folder is on the import path.

    `url` and `namespace` win over the App's own where they are given. Raises Failure, which says what to do.
    """
    module_name, colon, path = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise Failure(f"{target!r} names no App: write module:app, e.g. tasks:app for `app` in tasks.py", WRONG_USAGE)
    app = _attribute(_import(module_name), module_name, path)
    if not isinstance(app, App):
        raise Failure(f"{target} is a {type(app).__name__}, not an App", WRONG_USAGE)
    app.rebind(url=url, namespace=namespace)
    return app


def _import(name: str) -> Any:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even call sys.exit() while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise Failure(f"no module {error.name!r} in {folder} or on the import path", WRONG_USAGE) from None
        what = f"{type(error).__name__}: {error}"
        raise Failure(f"importing {name} failed: {what} (-v shows where)", FAILED) from error


def _attribute(module: Any, module_name: str, path: str) -> Any:
    value = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            apps = sorted(key for key, found in vars(module).items() if isinstance(found, App))
            hint = f"; it has the App {', '.join(apps)}" if apps else ""
            raise Failure(f"module {module_name} has no {path!r}{hint}", WRONG_USAGE) from None
    return value
