"""`python -m rzsched`: the command line."""

from rzsched.cli import main

if __name__ == "__main__":
    main()
