"""The run's own decisions, with a fake session and delay line: what is void, what is made again, what is kept."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from report_records import a_record, a_run, a_sample, an_exchange

from netlab.errors import ProbeError, ServerExceptionError, VoidRunError
from netlab.probe.query import BrokenAnswerError
from netlab.record import LatenessReport
from netlab.repro import explain_all, unmet_expectations
from netlab.run import LATEST, _ask, _keeping, _Progress, refusal
from netlab.samples import QueryException
from netlab.scenario import Emulation, Expectation, Link, Scenario, Server, ServerKind, Workload
from netlab.units import ms, us

SERVER = Server(kind=ServerKind.SCRIPTED, label="scripted")
SAMPLE = a_sample(an_exchange(0), 1)


class Session:
    """Answers each query with `SAMPLE`, or breaks at query `broken`."""

    def __init__(self, broken=None):
        self.asked = []
        self.silences = 0
        self._broken = broken

    def wait_idle(self, duration, *, tick):
        self.silences += 1
        tick(duration)

    def run(self, query, *, settings, index, timeout):
        self.asked.append((query, settings, index, timeout))
        sample = replace(SAMPLE, index=index, lateness=None)
        if index == self._broken:
            raise BrokenAnswerError("the server left", replace(sample, void="the server left"))
        return sample


class Watcher:
    """Counts what it is told."""

    def __init__(self):
        self.seen, self.ticks, self.phases = [], 0, []

    def phase(self, text):
        self.phases.append(text)

    def queries(self, label, total):
        self.phases.append(f"{total} queries")

    def measured(self, sample):
        self.seen.append(sample)

    def tick(self):
        self.ticks += 1


def lab(*worst, dropped=0):
    """A delay line whose worst lateness goes through `worst`, and stays at the last."""
    left = list(worst)

    def lateness(since_at, until_at):
        now = left.pop(0) if len(left) > 1 else left[0]
        if now is None:
            return None
        return LatenessReport(packets=9, dropped=dropped, lost=0, median=us(5), p99=us(9), worst=now)

    return SimpleNamespace(lateness=lateness)


def ask(session, delays, **work):
    scenario = Scenario(workload=Workload(**{"count": 3, "warmup": 2, **work}), servers=(SERVER,))
    progress, watcher = _Progress(server=SERVER, lab=delays), Watcher()
    return scenario, progress, watcher, lambda: _ask(scenario, session, progress, watcher)


def test_warm_ups_are_apart_and_have_no_silence_before_them():
    session = Session()
    scenario, progress, watcher, go = ask(session, lab(us(20)), settings=(("a", "1"),))
    go()
    assert [sample.index for sample in progress.warmups] == [1, 2]
    assert [sample.index for sample in progress.samples] == [1, 2, 3]
    assert [sample.lateness for sample in progress.samples] == [us(20)] * 3
    assert session.silences == 3
    assert watcher.seen == progress.samples
    assert watcher.ticks == 3
    assert {asked[:2] for asked in [(q, tuple(s.items())) for q, s, _, _ in session.asked]} == {
        (scenario.workload.query, (("a", "1"),))
    }


def test_a_late_query_is_void_and_made_again():
    _, progress, watcher, go = ask(Session(), lab(us(20), us(20), us(20), LATEST + 1, us(20)))
    go()
    assert [sample.void for sample in progress.samples] == [None, "a packet was forwarded 1ms late", None, None]
    assert [sample.index for sample in progress.samples] == [1, 2, 3, 4]
    assert len(watcher.seen) == 4


def test_as_late_as_allowed_is_sound():
    _, progress, _, go = ask(Session(), lab(LATEST))
    go()
    assert [sample.void for sample in progress.samples] == [None] * 3


def test_a_machine_that_is_always_late_is_told_so():
    _, progress, _, go = ask(Session(), lab(ms(5)))
    with pytest.raises(VoidRunError, match="only 0 of 3 queries are sound; the last void one: a packet was") as caught:
        go()
    assert "busy" in caught.value.hint
    assert len(progress.samples) == 7


@pytest.mark.parametrize(("rate", "sound"), [(None, False), (10**7, True)])
def test_drops_belong_to_bottlenecks_alone(rate, sound):
    session, progress, watcher = Session(), _Progress(server=SERVER, lab=lab(us(9), dropped=2)), Watcher()
    link = Link(to_client=Emulation(delay=ms(32), rate=rate))
    scenario = Scenario(workload=Workload(count=1, warmup=0), link=link)
    if sound:
        _ask(scenario, session, progress, watcher)
    else:
        with pytest.raises(VoidRunError, match="the delay line dropped 2 packets"):
            _ask(scenario, session, progress, watcher)
    assert progress.samples[0].void == (None if sound else "the delay line dropped 2 packets")


@pytest.mark.parametrize("delays", [None, lab(None)], ids=["no lab", "the kernel's netem"])
def test_without_a_delay_line_of_ours_there_is_no_lateness(delays):
    _, progress, _, go = ask(Session(), delays)
    go()
    assert [(sample.void, sample.lateness) for sample in progress.samples] == [(None, None)] * 3


def test_a_broken_answer_is_kept_and_ends_the_run():
    _, progress, watcher, go = ask(Session(broken=2), lab(us(9)), warmup=0)
    with pytest.raises(BrokenAnswerError) as caught:
        go()
    assert caught.value.hint
    assert [sample.void for sample in progress.samples] == [None, "the server left"]
    assert len(watcher.seen) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ProbeError("lost", hint="look"), ("lost (look)", None)),
        (VoidRunError("late"), (None, "late")),
        (KeyboardInterrupt("SIGTERM"), ("interrupted by SIGTERM", None)),
        (MemoryError(), (None, None)),
    ],
)
def test_however_a_run_ends_it_is_kept_and_says_why(error, said):
    kept = []
    progress = _Progress(server=SERVER)
    progress.samples.append(SAMPLE)
    with pytest.raises(type(error)), _keeping(progress, kept.append):
        raise error
    (run,) = kept
    assert (run.error, run.void) == said
    assert run.samples == (SAMPLE,)


# -- what is expected -------------------------------------------------------------------------------------------------

STALLED = "clickhouse:26.7"


def expecting(*runs, **expected):
    scenario = replace(Scenario(), expectations=((STALLED, Expectation(**expected)),))
    return unmet_expectations(a_record(*runs, scenario=scenario))


@pytest.mark.parametrize(
    ("expected", "unmet"),
    [
        ({"cause": "idle_window_restart", "extra_round_trips": 1}, []),
        ({}, []),
        ({"cause": "healthy"}, [f"{STALLED}: expected cause healthy, got idle_window_restart"]),
        ({"extra_round_trips": 0}, [f"{STALLED}: expected 0 extra round trips, got 1"]),
    ],
)
def test_each_unmet_expectation_is_one_sentence(expected, unmet):
    assert expecting(**expected) == unmet


def test_nothing_measured_meets_no_expectation():
    run = a_run("26.7", stalled=True, queries=2)
    void = replace(run, samples=tuple(replace(sample, void="late") for sample in run.samples))
    assert expecting(void) == [f"{STALLED}: no sound query, so the expectation is not met"]
    assert expecting(replace(run, diagnosis=None)) == [
        f"{STALLED}: 2 queries are not in the capture, so the expectation is not met"
    ]
    assert expecting(a_run("26.9", stalled=False), cause="healthy") == []


def test_void_queries_are_neither_expected_nor_explained():
    run = a_run("26.7", stalled=True, queries=2)
    first, second = run.samples
    moved = replace(second, void="late", sent_at=second.sent_at + ms(900))
    assert expecting(replace(run, samples=(first, moved)), cause="idle_window_restart") == []
    assert explain_all(a_record(replace(run, samples=(moved,)))) == ()
    (verdict,) = explain_all(a_record(replace(run, samples=(first, moved))))
    assert verdict.extra_round_trips == (1,)


# -- refusals ---------------------------------------------------------------------------------------------------------


def failed(code=47):
    return replace(SAMPLE, exception=QueryException(code=code, name="DB::Exception", message="no column"))


def test_a_run_of_exceptions_alone_is_refused():
    run = replace(a_run("26.7", stalled=True), samples=(failed(1), replace(SAMPLE, void="late"), failed()))
    error = refusal(run)
    assert isinstance(error, ServerExceptionError)
    assert error.code == 47
    assert "every query ended in an exception; the last: no column" in error.what
    assert refusal(replace(run, samples=(failed(), SAMPLE))) is None
    assert refusal(replace(run, samples=(SAMPLE, failed()))) is None
    assert refusal(replace(run, samples=())) is None
