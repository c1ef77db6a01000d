"""When a step is complete: what every source owes has come, or is not waited for any longer."""

import json

from ptt.diagnostics.watch.observed import ObservedStep, StepTail
from ptt.watching.course import LATE_STEPS, LOGS, WENT_ON, Course


def seen(**sources: range) -> Course:
    course = Course()
    for name, steps in sources.items():
        course.saw(name, steps)
        for step in steps:
            if name == LOGS:
                course.add(ObservedStep(step=step, metrics={"loss/total": float(step)}))
            else:
                course.add_file(step, f"{name}/{step}")
    return course


def test_the_step_that_is_being_written_waits_for_the_next() -> None:
    assert seen(rank0=range(1, 6)).complete(ended=False) == [1, 2, 3, 4]
    assert seen(rank0=range(1, 6)).complete(ended=True) == [1, 2, 3, 4, 5]


def test_a_step_that_the_trainer_says_is_done_is_not_waited_for() -> None:
    course = seen(rank0=range(1, 6), rank1=range(1, 5), logs=range(1, 6))
    course.logged = 5
    assert course.complete(ended=False) == [1, 2, 3, 4]
    course.saw("rank1", [5])
    assert course.complete(ended=False) == [1, 2, 3, 4, 5]


def test_a_rank_that_is_late_is_waited_for() -> None:
    assert seen(rank0=range(1, 6), rank1=range(1, 4)).complete(ended=False) == [1, 2, 3]


def test_a_rank_that_fell_silent_is_not() -> None:
    steps = seen(rank0=range(1, 21), rank1=range(1, 4)).complete(ended=False)
    assert steps == list(range(1, 21 - LATE_STEPS))


def test_a_log_of_every_tenth_step_holds_up_those_steps_alone() -> None:
    course = seen(rank0=range(1, 26), logs=range(10, 30, 10))
    assert course.complete(ended=False) == list(range(1, 25))
    course.saw("rank0", range(26, 35))
    for step in range(26, 35):
        course.add_file(step, f"rank0/{step}")
    assert course.complete(ended=False) == list(range(1, 30))


def test_one_line_that_counts_something_else_is_no_step_of_the_run() -> None:
    course = seen(rank0=range(1, 6), logs=range(1, 6))
    course.saw(LOGS, [1_000_000])
    course.add(ObservedStep(step=1_000_000, metrics={"loss/total": 1.0}))
    assert course.newest == 5
    assert course.complete(ended=False) == [1, 2, 3, 4]


def test_a_log_goes_on_alone_where_recording_was_given_up() -> None:
    assert seen(rank0=range(1, 6), logs=range(1, 6 + WENT_ON)).complete(ended=False)[-1] == 5 + WENT_ON - LATE_STEPS


def test_steps_that_come_again_are_told_once_and_not_tested_again() -> None:
    course = seen(rank0=range(1, 22))
    for step in course.complete(ended=False):
        course.take(step)
    for step in range(10, 15):
        course.saw("rank0", [step])
        course.add_file(step, f"rank0/{step}")
        assert bool(course.came_again()) == (step == 10)
    assert course.complete(ended=True) == [21]


def test_it_goes_on_from_its_state_as_json_holds_it() -> None:
    course = seen(rank0=range(1, 9), logs=range(1, 7))
    course.add(
        ObservedStep(
            step=6, metrics={"loss/total": float("nan")}, tails={"text_only": StepTail(tokens=3, p95=0.1, p99=0.2)}
        )
    )
    for step in course.complete(ended=False):
        course.take(step)
    again = Course.restored(json.loads(json.dumps(course.state())))
    assert repr(again) == repr(course)
