"""Commands as they travel: numbers, and a signal that comes while one is packed."""

import subprocess
import sys

from rzsched.packing import pack_command

INTERRUPTED = """
import signal, time
from rzsched.packing import pack_command

class Rung(Exception):
    pass

def ring(number, frame):
    raise Rung

command = ("EVALSHA", "f" * 40, 3, *range(300))
signal.signal(signal.SIGALRM, ring)
rung, until = 0, time.monotonic() + 0.5
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, 20e-6)
        for _ in range(100):
            pack_command(command)
    except Rung:
        rung += 1
print(rung)
"""


def test_words_bytes_and_numbers_are_packed() -> None:
    assert pack_command(("SET", b"k\xff", -12)) == b"*3\r\n$3\r\nSET\r\n$2\r\nk\xff\r\n$3\r\n-12\r\n"
    assert pack_command(("é", 2**63, "")) == b"*3\r\n$2\r\n\xc3\xa9\r\n$19\r\n9223372036854775808\r\n$0\r\n\r\n"


def test_an_interruption_while_numbers_are_packed_is_an_exception_and_no_crash() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert int(ended.stdout) > 20
