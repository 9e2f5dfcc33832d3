"""The command line: parse, call, print. It holds no rules of its own but exit codes (see `failures`)."""

from rzsched.cli.root import cli


def main() -> None:
    """Run the command that the process was started with, and exit."""
    cli.main()


__all__ = ["cli", "main"]
