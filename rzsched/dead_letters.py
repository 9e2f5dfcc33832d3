"""The operations on dead jobs: list, replay, purge. See `operations` for the form."""

from collections.abc import Sequence

from rzsched import calls
from rzsched.answers import DeadJob, Refusals, read_dead
from rzsched.calls import Call
from rzsched.config import Durability
from rzsched.durability import Wait
from rzsched.errors import JobNotFound
from rzsched.keeping import hold_to, keep, wait_for
from rzsched.keys import Partition
from rzsched.names import check_queue
from rzsched.space import Plan, Space, partitions_of


def list_dead(space: Space, queue: str, count: int = 100, *, after: str | None = None) -> Plan[list[DeadJob]]:
    """List dead jobs of a queue, oldest first, at most `count`; `after` an `entry` goes on from there.

    Over several partitions a page may be longer: it ends only where paging can go on without skipping an entry.
    """
    check_queue(queue)
    if type(count) is not int or count < 1:
        raise ValueError(f"count must be an int of at least 1, not {count!r}")
    places = yield from partitions_of(space, queue)
    start = f"({after}" if after else "-"
    pages = yield [
        calls.command("XRANGE", place.dead, start, "+", "COUNT", count, read=read_dead(queue)) for place in places
    ]
    jobs = sorted((job for page in pages for job in page), key=_entry_order)
    while count < len(jobs) and jobs[count].entry == jobs[count - 1].entry:
        count += 1
    return jobs[:count]


def _entry_order(job: DeadJob) -> tuple[int, int]:
    ms, _, sequence = job.entry.partition("-")
    return int(ms), int(sequence)


def replay_dead(space: Space, queue: str, ids: Sequence[str] | None = None, *,
                durability: Durability | None = None) -> Plan[Refusals]:
    """Put dead jobs back to work, those named or all; give how many.

    Payload, options and id are kept; attempts start again. A job whose idempotency key another live job holds by now
    stays dead: `.refused` maps its id to that job. Replaying all may be interrupted and repeated: what died again
    meanwhile is not replayed twice. Raises JobNotFound when a named job isn't dead, NotDurable as `schedule_job` does,
    with the ids of
    those replayed last, at most 500.
    """
    return (yield from _over_dead(space, "replay", queue, ids, durability))


def purge_dead(space: Space, queue: str, ids: Sequence[str] | None = None) -> Plan[Refusals]:
    """Delete dead jobs for good, those named or all; give how many. Raises JobNotFound when a named one isn't dead.

    No durability is needed: what comes back by a crash is purged again.
    """
    return (yield from _over_dead(space, "purge", queue, ids, "memory"))


def _over_dead(space: Space, verb: str, queue: str, ids: Sequence[str] | None,
               durability: Durability | None) -> Plan[Refusals]:
    check_queue(queue)
    if isinstance(ids, str):
        raise TypeError("ids must be a list of job ids, not one str")
    wait = yield from wait_for(space, durability)
    places = yield from partitions_of(space, queue)
    if ids is not None:
        return (yield from _over_named(space, verb, queue, places, list(ids), wait))
    result = Refusals.empty()
    for place in places:
        # What dies from now on is left alone, else a job that dies at once would be replayed for ever.
        (last,) = yield [calls.command("XREVRANGE", place.dead, "+", "-", "COUNT", 1, read=list)]
        after = "-"
        while last and after is not None:
            call = calls.over_dead(verb, place, after=after, to=last[0][0].decode())
            page = yield from _page(space, wait, place, call)
            result = result.plus(page.results)
            after = f"({page.last}" if page.last else None  # type: ignore[assignment]
    return result


def _page(space: Space, wait: Wait | None, place: Partition, call: Call[calls.Page]) -> Plan[calls.Page]:
    page: calls.Page
    (page,), lack = yield from keep(space, wait, [(place, call)])
    hold_to([job_id for job_id, what in page.results if what == "OK"], lack)
    return page


def _over_named(space: Space, verb: str, queue: str, places: list[Partition], ids: list[str],
                wait: Wait | None) -> Plan[Refusals]:
    by_place: dict[Partition, list[str]] = {}
    for job_id in ids:
        # An entry without a job record is named by its stream id.
        if job_id.replace("-", "", 1).isdigit():
            found = yield [calls.command("XRANGE", place.dead, job_id, job_id, read=bool) for place in places]
            place = places[found.index(True)] if True in found else places[0]
        else:
            place = space.place_of(job_id)
        if place.queue != queue:
            raise JobNotFound(job_id)
        by_place.setdefault(place, []).append(job_id)
    result = Refusals.empty()
    for place, named in by_place.items():
        for first in range(0, len(named), 500):
            call = calls.over_dead(verb, place, ids=named[first : first + 500])
            result = result.plus((yield from _page(space, wait, place, call)).results)
    for job_id, what in result.refused.items():
        if what == "NOT_FOUND":
            raise JobNotFound(job_id)
    return result
