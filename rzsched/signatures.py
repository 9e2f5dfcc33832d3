"""What a task's function says of itself: whether it is async, whether it wants a context, and what it takes."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from rzsched.context import Context


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether a call gives a coroutine. Raises TypeError for a generator, which nobody would drive."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError("a task must be a plain or async function, not a generator")
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(inspect.unwrap(called))


def takes_context(function: Callable[..., Any]) -> bool:
    """Say whether the first parameter is annotated `Context`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(function).get(parameters[0].name)
        except Exception:
            # Another annotation names something that is not importable at run time: go by the word.
            return str(parameters[0].annotation).rpartition(".")[2] == "Context"
    return annotation is Context


def signature_of_arguments(function: Callable[..., Any], *, with_context: bool) -> inspect.Signature | None:
    """Give what a job's arguments must fit, None where nothing is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters[1:]) if with_context else signature
