"""How much memory does a scheduled job take?"""

import time

from bench.common import Figures, answer, parser
from bench.figures import Target
from bench.server import Server
from rzsched import Client, JobSpec
from rzsched.codec import encode_payload

QUESTION = "How many bytes does a scheduled job take?"
TARGETS = [Target("bytes_per_job", 350)]
JOBS = 100_000
PAYLOAD_BYTES = 60
DAY_S = 86_400
CALM_S = 0.3
PATIENCE_S = 20.0


def text_for(payload_bytes: int) -> str:
    """Give an argument with which the stored payload has that many bytes."""
    return "x" * (payload_bytes - len(encode_payload(("x" * payload_bytes,), None, 1 << 20)) + payload_bytes)


def bytes_per_job(server: Server, count: int, text: str) -> float:
    """Fill an empty server with jobs due over a day and see what `used_memory` grows by for each."""
    server.redis.flushall()
    with Client(server.url) as client:
        client.cancel_job(client.schedule_job("nothing"))  # what a server has once is not a job's
    before = _settled_memory(server)
    specs = (JobSpec("nothing", args=(text,), delay=DAY_S * (1 + index / count)) for index in range(count))
    with Client(server.url) as client:
        client.schedule_many(specs)
    return (_settled_memory(server) - before) / count


def _settled_memory(server: Server) -> int:
    """Wait until the server has let go of buffers and old hash tables."""
    deadline, last, since = time.monotonic() + PATIENCE_S, 0, time.monotonic()
    while time.monotonic() < deadline:
        info = server.redis.info("memory")
        # A connection's buffers come and go with the looks themselves.
        used = int(info["used_memory"]) - int(info.get("mem_clients_normal", 0))
        if used != last:
            last, since = used, time.monotonic()
        elif time.monotonic() - since > CALM_S:
            break
        time.sleep(0.05)
    return last


def measure(server: Server, large: bool) -> Figures:
    text = text_for(PAYLOAD_BYTES)
    counts = [10_000, 1_000_000] if large else [10_000]
    figures: Figures = {"bytes_per_job": bytes_per_job(server, JOBS, text)}
    figures |= {f"bytes_per_job_of_{count}": bytes_per_job(server, count, text) for count in counts}
    figures["bytes_per_job_60_character_argument"] = bytes_per_job(server, JOBS, "x" * 60)
    figures["bytes_per_job_200_byte_payload"] = bytes_per_job(server, JOBS, text_for(200))
    return figures


def main() -> None:
    options = parser(QUESTION)
    options.add_argument("--large", action="store_true", help="measure 1,000,000 jobs too")
    chosen = options.parse_args()
    measured = f"used_memory of {JOBS} scheduled jobs, {PAYLOAD_BYTES}-byte payload, defaults, no key"
    answer(chosen, QUESTION, measured, TARGETS, lambda server: measure(server, chosen.large))


if __name__ == "__main__":
    main()
