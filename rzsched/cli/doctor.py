"""Is all well: the server, who is alive, and every job in exactly one place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from rzsched import calls
from rzsched.audit import Report, audit
from rzsched.calls import Call
from rzsched.cli.context import Session, json_option, pass_session
from rzsched.cli.failures import FAILED
from rzsched.cli.output import print_json, print_table, record
from rzsched.client import Client
from rzsched.config import DEFAULT_NAMESPACE, ClientSettings
from rzsched.doctor import (
    BAD,
    OK,
    WARN,
    Ask,
    Check,
    ask_server,
    count_schedulers,
    judge_fleet,
    judge_masters,
    judge_server,
)
from rzsched.errors import one_line
from rzsched.exchange import Step
from rzsched.repair import Mend, repair
from rzsched.space import Plan, Space
from rzsched.topology import one_slot_of_each_master, slots_call

AUDITED_KEYS = 20_000
"""A server with at most so many keys is audited without being asked to: that takes a second."""
_MOST_SHOWN = 200


@click.command()
@click.option("--audit", "audited", is_flag=True, help="Prove that every job is in one place, however many there are.")
@click.option("--fix", is_flag=True, help="Mend what the audit finds, and say what was done.")
@json_option
@pass_session
def doctor(session: Session, audited: bool, fix: bool, json: bool) -> None:
    """Judge the server and what is on it, and say what to do.

    The audit reads in pages and may run while jobs flow. --fix puts a job that is in no place, in several or in a wrong
    one into one, and removes what has no job behind it; a run whose worker is alive is left to it. The exit code is 1
    where anything is bad, or stays broken.
    """
    namespace = DEFAULT_NAMESPACE if session.namespace is None else session.namespace
    report, mends = None, list[Mend]()
    with Client(session.url, settings=ClientSettings(namespace=namespace, check_server=False)) as client:
        masters = client.run(_masters(client.space))
        checks = judge_masters({slot: judge_server(ask_server(_asking(client, slot))) for slot in masters})
        if all(check.verdict != BAD for check in checks if check.name in {"version", "replication", "scripts"}):
            checks += _fleet(client, namespace)
            if audited or fix or client.run(_count_keys(masters)) <= AUDITED_KEYS:
                report, mends = _audit(client, fix)
            checks.append(_judge(report))
    if json:
        print_json({"checks": [record(check) for check in checks], "audit": _audit_record(report),
                    "mends": [record(mend) for mend in mends]})  # fmt: skip
    else:
        _show(checks, report, mends)
    if any(check.verdict == BAD for check in checks):
        click.get_current_context().exit(FAILED)


def _masters(space: Space) -> Plan[list[int | str]]:
    """Give a slot of each master of a cluster; one server is asked as it is."""
    if not space.is_spread:
        return [calls.ANYWHERE]
    (slots,) = yield [slots_call(one_slot_of_each_master)]
    return list(slots)


def _asking(client: Client, slot: int | str) -> Ask:
    def ask(steps: Sequence[Step]) -> list[Any]:
        return client.link.outcomes([replace(step, route=slot) if isinstance(step, Call) else step for step in steps])

    return ask


def _count_keys(masters: Sequence[int | str]) -> Plan[int]:
    counts = yield [calls.command("DBSIZE", read=int, route=slot) for slot in masters]
    return sum(counts)


def _fleet(client: Client, namespace: str) -> list[Check]:
    return judge_fleet(count_schedulers(client.link.outcomes, namespace), client.workers(), client.queues(),
                       len(client.list_crons()))


def _audit(client: Client, fix: bool) -> tuple[Report, list[Mend]]:
    """Audit; mend until nothing more can be, since one mend may uncover another."""
    mends: list[Mend] = []
    report = client.run(audit(client.space))
    while fix and report.suspects:
        done = client.run(repair(client.space, report.suspects))
        mends += done
        report = client.run(audit(client.space))
        if not done:
            break
    return report, mends


def _judge(report: Report | None) -> Check:
    if report is None:
        return Check("audit", WARN, f"not done: over {AUDITED_KEYS} keys", "rzsched doctor --audit")
    jobs = record(report.counts)
    total = sum(jobs.values())
    found = f"{total} jobs in {len(report.partitions)} partitions, {len(report.findings)} findings"
    if report.findings:
        return Check("audit", BAD, found, "rzsched doctor --fix; what stays is a live worker's, or yours to decide")
    return Check("audit", OK, found)


def _audit_record(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {"partitions": report.partitions, "counts": record(report.counts),
            "findings": [record(finding) for finding in report.findings]}  # fmt: skip


def _show(checks: list[Check], report: Report | None, mends: list[Mend]) -> None:
    print_table(["CHECK", "VERDICT", "FOUND", "WHAT TO DO"],
                [[check.name, check.verdict, check.found, check.advice] for check in checks])
    for mend in mends:
        click.echo(one_line(f"mended {mend.key}: {mend.what}"))
    findings = report.findings if report else []
    for finding in findings[:_MOST_SHOWN]:
        click.echo(one_line(f"found {finding.kind} {finding.key}: {finding.detail}"))
    if len(findings) > _MOST_SHOWN:
        click.echo(f"and {len(findings) - _MOST_SHOWN} more findings: see --json")
