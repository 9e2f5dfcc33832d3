"""Looks at what is due come just after their instant, wherever the server is and whatever holds some of them up."""

from __future__ import annotations

import pytest

from rzsched.aim import AIM_S, FIRST_LEAD_S, MOST_LEAD_S, Aim

DUE_MS = 1_796_000_000_000


def look(aim: Aim, way_s: float, held_up_s: float = 0.0) -> float:
    """Send one look; give how late the server's clock was in its answer."""
    aim.take(DUE_MS)
    late_s = way_s + held_up_s - aim.lead_s
    aim.heard(round((DUE_MS / 1000 + late_s) * 1_000_000))
    return late_s


@pytest.mark.parametrize("way_s", [0.0006, 0.001, 0.002])
def test_looks_come_as_they_should_wherever_the_server_is(way_s: float) -> None:
    aim = Aim()
    late_s = [look(aim, way_s) for _ in range(60)]
    assert late_s[0] == pytest.approx(way_s - FIRST_LEAD_S)
    assert late_s[-1] == pytest.approx(AIM_S, abs=0.00005)
    assert min(late_s) > 0, "none came before its instant"


def test_looks_that_were_held_up_do_not_make_the_others_early() -> None:
    aim = Aim()
    late_s = [look(aim, 0.001, held_up_s=0.005 if n % 5 == 4 else 0.0) for n in range(300)]
    assert min(late_s) > 0 and sorted(late_s[100:])[100] == pytest.approx(AIM_S, abs=0.0001)


def test_a_lead_has_bounds() -> None:
    aim = Aim()
    for _ in range(100):
        look(aim, 0.1)
    assert aim.lead_s == MOST_LEAD_S
    for _ in range(100):
        look(aim, 0.0)
    assert aim.lead_s == 0.0


def test_other_answers_teach_nothing() -> None:
    aim = Aim()
    aim.heard(DUE_MS * 1000 + 900)
    look(aim, FIRST_LEAD_S + AIM_S)
    aim.heard(DUE_MS * 1000 + 900)
    aim.take(DUE_MS)
    aim.heard(0)
    aim.take(None)
    aim.heard(DUE_MS * 1000 + 900)
    assert aim.lead_s == pytest.approx(FIRST_LEAD_S, abs=0.000001)
