"""How a command ends: its exit code, and one line on stderr that says why.

Never a traceback unless asked, never a password.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from rzsched.cli.context import Session
from rzsched.cli.secrets import hide
from rzsched.errors import ConnectionFailed, JobNotFound, one_line

DONE, FAILED, WRONG_USAGE, NOT_FOUND, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130
_LINE_CHARS = 800


class Failure(click.ClickException):
    """End the command with this message and exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: BaseException) -> int:
    """Say how a command ends that raised this."""
    if isinstance(error, Failure):
        return error.code
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, JobNotFound):
        return NOT_FOUND
    if isinstance(error, ConnectionFailed):
        return UNREACHABLE
    # InvalidName, InvalidCron, PayloadError and PayloadTooLarge are ValueErrors too.
    return WRONG_USAGE if isinstance(error, ValueError | TypeError) else FAILED


def describe(error: BaseException) -> str:
    """Say in one printable line what went wrong."""
    if not isinstance(error, click.ClickException):
        return one_line(hide(str(error) or type(error).__name__), _LINE_CHARS)
    line = one_line(hide(error.format_message()), _LINE_CHARS)
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return line
    hint = f"see {error.ctx.command_path} --help"
    if isinstance(error, click.NoSuchOption):
        hint += ", or put -- before a name that begins with -"
    return f"{line.rstrip('.')} ({hint})"


def warn(message: str) -> None:
    """Print one line on stderr."""
    click.echo(f"rzsched: {one_line(hide(message), _LINE_CHARS)}", err=True)


def fail(error: BaseException, verbose: bool = False) -> NoReturn:
    if verbose:
        click.echo(hide("".join(traceback.format_exception(error))), err=True, nl=False)
    click.echo(f"rzsched: {describe(error)}", err=True)
    sys.exit(exit_code(error))


class RootGroup(click.Group):
    """The group of all commands, where every error ends."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except (click.UsageError, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            session = ctx.find_object(Session)
            fail(error, session is not None and session.verbose)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, complete_var: str | None = None,
             standalone_mode: bool = True, windows_expand_args: bool = True, **extra: Any) -> NoReturn:
        """Run a command and exit, as click does, but report each error in one line."""
        try:
            code = super().main(args, "rzsched", complete_var, standalone_mode=False,
                                windows_expand_args=windows_expand_args, **extra)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
                error.show()
                sys.exit(error.exit_code)
            fail(error)
        sys.exit(code if isinstance(code, int) else DONE)
