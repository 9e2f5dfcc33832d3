"""What is answered of a schedule. Instants are aware UTC datetimes, durations are seconds."""

from dataclasses import dataclass, field
from datetime import datetime

from rzsched.codec import decode_payload
from rzsched.job import instant, whole
from rzsched.schedule import TIMING_FIELDS, Timing, read_timing


@dataclass(frozen=True, slots=True, kw_only=True)
class CronRun:
    """One of a schedule's last instants, and what became of it."""

    scheduled_for: datetime
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CronStatus:
    """A schedule at one instant. `owner` is the App that declares it, None for one made by a client.

    `fired` counts occurrences written, `missed` instants that passed while nothing ran (run late or not), `skipped`
    those that the overlap policy left out. `waiting` occurrences begin when the one that runs ends. `last` is the
    nominal instant of the last occurrence.
    """

    id: str
    task: str
    queue: str
    cron: str | None
    every: float | None
    tz: str
    words: str
    last: datetime | None
    next_run_at: datetime | None
    overlap: str
    misfire: str
    misfire_limit: int
    misfire_window: float | None
    jitter: float
    start: datetime | None
    end: datetime | None
    dst_gap: str
    dst_fold: str
    paused: bool
    owner: str | None
    fired: int
    missed: int
    skipped: int
    waiting: int
    last_job_id: str | None
    created_at: datetime | None
    options: dict[str, str] = field(default_factory=dict)
    history: tuple[CronRun, ...] = ()
    payload: bytes = field(default=b"", repr=False)
    timing: Timing = field(default_factory=Timing, repr=False)
    fingerprint: str = field(default="", repr=False)

    def arguments(self) -> tuple[tuple[object, ...], dict[str, object]]:
        return decode_payload(self.payload)

    def coming(self, count: int, after_ms: int) -> list[datetime]:
        """Give the next instants after one, whether paused or not."""
        found = self.timing.instants(after_ms + 1, 1 << 62, count)
        return [at for ms in found if (at := instant(ms)) is not None]


def read_cron(queue: str, schedule_id: str, told: dict[str, bytes], history: dict[str, bytes],
              waiting: int) -> CronStatus:
    def text(name: str) -> str | None:
        value = told.get(name)
        return None if value is None else value.decode("utf-8", "replace")

    def number(name: str) -> int:
        return whole(told.get(name), 0)

    timing = read_timing(tuple(told.get(name, b"") for name in TIMING_FIELDS))
    next_text = text("next") or ""
    runs = sorted((int(at), what.decode("utf-8", "replace")) for at, what in history.items() if at.isdecimal())
    waits = next_text.isdecimal() and "paused" not in told
    window = timing.misfire_window_ms
    return CronStatus(
        id=schedule_id, task=text("task") or "", queue=queue, cron=timing.cron,
        every=None if timing.every_ms is None else timing.every_ms / 1000, tz=timing.tz, words=timing.in_words(),
        last=instant(text("last")), next_run_at=instant(next_text) if waits else None,
        overlap=timing.overlap, misfire=timing.misfire, misfire_limit=timing.misfire_limit,
        misfire_window=None if window is None else window / 1000, jitter=timing.jitter_ms / 1000,
        start=instant(timing.start_ms), end=instant(timing.end_ms), dst_gap=timing.dst_gap, dst_fold=timing.dst_fold,
        paused="paused" in told, owner=text("owner"), fired=number("fired"), missed=number("missed"),
        skipped=number("skipped"), waiting=waiting, last_job_id=text("current"), created_at=instant(text("created_at")),
        options={name[4:]: value.decode() for name, value in told.items() if name.startswith("job.")},
        history=tuple(CronRun(scheduled_for=at, outcome=what) for ms, what in runs if (at := instant(ms)) is not None),
        payload=told.get("payload", b""), timing=timing, fingerprint=text("fingerprint") or "",
    )  # fmt: skip
