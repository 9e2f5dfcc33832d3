"""Each script's header held against its body."""

import re
from pathlib import Path

import pytest

from rzsched import audit_crons, calls, cron_calls, keys, layout, repair, scripts
from rzsched.audit import look_call
from rzsched.calls import Call
from rzsched.growth import configure
from rzsched.resources import lua_dir

PLACE = keys.partition("rz", "q", 0)
FIXED = ("base", "scheduled", "dead", "stats")
MOST_LINES = 80
SAMPLES: dict[str, Call[object]] = {
    call.script: call  # type: ignore[misc]
    for call in (
        calls.attend("rz:workers"),
        audit_crons.look_call(PLACE, [b"id"]),
        look_call(PLACE, [(b"q.0.x", b"", ["5/1-1"])]),
        repair.mend_job(PLACE, "q.0.x", ["5/1-1"]),
        repair.mend_key(PLACE, "idem", "k"),
        repair.mend_cron(PLACE, "id"),
        calls.cancel(PLACE, "q.0.x"),
        calls.claim(PLACE, "w", 1000, 1, "", ["5/1-1"]),
        configure(PLACE, {"concurrency": "1"}),
        calls.enqueue(PLACE, []).call(),
        calls.finish(PLACE, "w", 1000, 1, "", [("DEAD", "q.0.x", "1", "5/1-1", "", "", "")]),
        layout.grow("rz", "q"),
        calls.inspect(PLACE, "q.0.x"),
        calls.join(PLACE, 15, [("task", 3)]),
        calls.measure(PLACE),
        calls.over_dead("purge", PLACE, ids=["q.0.x"]),
        calls.over_dead("replay", PLACE, ids=["q.0.x"]),
        calls.promote(PLACE, "s", 3, 10),
        calls.promote_claim(PLACE, "s", 3, 10, "w", 1000, 1),
        calls.prune(PLACE, 30, 10),
        calls.recover(PLACE),
        calls.release(PLACE, "w", ["q.0.x"]),
        calls.renew(PLACE, "w", 1000, [("q.0.x", "1", "5/1-1", "")]),
        calls.resign(PLACE, "s"),
        calls.watch(PLACE, "q.0.x", 1),
        cron_calls.due(PLACE, 10),
        cron_calls.fire(PLACE, "id", "1", 2, 0, [(1, "1", "fired")]),
        cron_calls.pause(PLACE, "id"),
        cron_calls.rearm(PLACE),
        cron_calls.register(PLACE, "rz:queues", "id", "f", 1, "", ["task", "t"]),
        cron_calls.resume(PLACE, "id", "f", 1),
        cron_calls.trigger(PLACE, "id", "triggered", [""]),
        cron_calls.unregister(PLACE, "id"),
    )
}


def source(name: str) -> str:
    return str(lua_dir().joinpath(f"{name}.lua").read_text(encoding="utf-8"))


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def naming_lines(name: str) -> tuple[list[str], list[str]]:
    """Split a body into its first block of `local` lines, which name keys and arguments, and the rest."""
    lines = without_comments(source(name)).splitlines()
    first = next((number for number, line in enumerate(lines) if not line.startswith("local ")), len(lines))
    return lines[:first], lines[first:]


def returned_words(text: str) -> set[str]:
    """Find the status words that a script's statements answer with: neither compared, stored nor sent to Redis."""
    text = without_comments(text)
    while (shorter := re.sub(r"redis\.p?call\([^()]*\)|_key\([^()]*\)|\bs?tring\.\w+\([^()]*\)", "", text)) != text:
        text = shorter
    text = re.sub(r"(==|~=|'state',) '[A-Z_]+'", "", text)
    answers = re.findall(r"(?:\breturn\b|\bwhat =|\banswer\b[^=\n]*=|\bnote =).*", text)
    return {word for line in answers for word in re.findall(r"'([A-Z][A-Z_]+)'", line)}


def literal_indexes(text: str, table: str) -> set[int]:
    return {int(number) for number in re.findall(rf"\b{table}\[(\d+)\]", text)}


@pytest.fixture(params=scripts.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_header_has_its_parts_in_order(name: str) -> None:
    header = source(name).split("\nlocal ")[0]
    order = [header.index(part) for part in ("-- KEYS: ", "-- ARGV: ", "-- Returns ")]
    assert order == sorted(order)
    assert header.startswith("-- ")
    assert not header.startswith("-- KEYS")
    includes = [header.index(line) for line in header.splitlines() if line.startswith("-- @include")]
    assert all(index > order[-1] for index in includes)


def test_the_keys_in_the_header_are_the_keys_in_use(name: str) -> None:
    script = scripts.script(name)
    used = literal_indexes(script.text, "KEYS")
    if script.keys[:4] == FIXED:
        used |= {1, 2, 3, 4}  # declared by every script of a partition, so that its slot is known
    assert used == set(range(1, len(script.keys) + 1))


def test_the_arguments_in_the_header_are_the_arguments_in_use(name: str) -> None:
    script = scripts.script(name)
    assert script.arguments[0] == "now_ms"
    used = literal_indexes(without_comments(script.text), "ARGV") | {1}
    assert used == set(range(1, len(script.arguments) + 1))


def test_keys_and_arguments_are_named_once_in_the_first_lines(name: str) -> None:
    naming, rest = naming_lines(name)
    assert not re.findall(r"\b(?:KEYS|ARGV)\[\d+\]", "\n".join(rest))
    fixed = re.findall(r"\b(?:KEYS|ARGV)\[\d+\]", "\n".join(naming))
    assert len(fixed) == len(set(fixed))


def test_only_a_script_with_a_tail_of_arguments_walks_over_them(name: str) -> None:
    script = scripts.script(name)
    walks = re.search(r"ARGV\[[^\]\d]|unpack\(ARGV|#ARGV", script.text) is not None
    assert walks == script.repeats


def test_every_argument_has_its_own_name(name: str) -> None:
    """Each is bound by that very name, or converted into one that tells it."""
    naming, _ = naming_lines(name)
    for number, argument in enumerate(scripts.script(name).arguments[1:], start=2):
        (line,) = [line for line in naming if f"ARGV[{number}]" in line]
        assert re.search(rf"\b{argument}\b", line.split("=")[0]), f"{argument} is named otherwise in: {line}"


def test_every_status_in_the_header_occurs_in_the_body(name: str) -> None:
    script = scripts.script(name)
    assert script.statuses
    missing = {word for word in script.words if f"'{word}'" not in without_comments(script.text)}
    assert not missing


def test_every_status_in_the_body_is_in_the_header(name: str) -> None:
    script = scripts.script(name)
    assert returned_words(script.text) - script.words == set()
    assert script.statuses <= returned_words(script.text)


def test_no_answer_is_an_error_or_null(name: str) -> None:
    body = without_comments(scripts.script(name).text)
    assert "error_reply" not in body
    assert "status_reply" not in body
    assert not re.search(r"return \{[^}]*\b(nil|false)\b", body)


def test_includes_exist_and_go_one_level_deep(name: str) -> None:
    script = scripts.script(name)
    assert "@include" not in script.text
    for path in re.findall(r"@include (\S+)", source(name)):
        included = Path(str(lua_dir().joinpath(path))).read_text(encoding="utf-8")
        assert "@include" not in included
        needs = re.search(r"^-- Needs: (.+)\.$", included, re.MULTILINE)
        for need in needs[1].split(", ") if needs else []:
            before = source(name).split(f"@include {path}")[0]
            assert f"@include lib/{need}.lua" in before, f"{name}: {path} needs {need} before it"


def test_a_script_is_short_and_needs_no_global(name: str) -> None:
    text = source(name)
    assert len(text.splitlines()) <= MOST_LINES
    assert not re.findall(r"^function \w+\(", scripts.script(name).text, re.MULTILINE)
    local = set(re.findall(r"\w+", " ".join(re.findall(r"^local ([\w, ]+) =", text, re.MULTILINE))))
    assert set(re.findall(r"^(\w+) = ", text, re.MULTILINE)) <= local


def test_its_call_sends_what_the_header_asks_for(name: str) -> None:
    script, call = scripts.script(name), SAMPLES[name]
    assert len(call.keys) == len(script.keys)
    assert len(call.args) >= len(script.arguments)
    assert script.repeats or len(call.args) == len(script.arguments)
    if script.keys[:4] == FIXED:
        assert tuple(call.keys[:4]) == PLACE.fixed


def test_every_script_has_a_call() -> None:
    assert set(SAMPLES) == set(scripts.names())
