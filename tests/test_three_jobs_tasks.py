"""Rewards are right about right and wrong replies, generated SQL is harmless, and the tokenizers are exact."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.three_jobs.arithmetic_task import ArithmeticTask, worked
from examples.three_jobs.dialogue_task import DialogueTask
from examples.three_jobs.sql_database import StaffDatabase
from examples.three_jobs.sql_task import SqlTask
from examples.three_jobs.task import Question, Task
from examples.three_jobs.tokenizer import END, PAD, Tokenizer

TASKS: list[Task] = [SqlTask(3), ArithmeticTask(3), DialogueTask(3)]


@pytest.fixture(params=TASKS, ids=lambda task: type(task).__name__)
def task(request: pytest.FixtureRequest) -> Task:
    found: Task = request.param
    return found


@pytest.fixture
def database() -> StaffDatabase:
    return StaffDatabase(Random(1))


# -------------------------------------------------------------------------------------------- every task


def test_what_a_task_draws_survives_its_tokenizer_and_fits_its_widths(task: Task) -> None:
    rng = Random(5)
    for _ in range(300):
        shown = task.demonstration(rng)
        prompt, reply = task.tokenizer.encode(shown.prompt), task.tokenizer.encode(shown.reply)
        assert task.tokenizer.decode(prompt) == shown.prompt
        assert task.tokenizer.decode(reply) == shown.reply
        assert len(prompt) <= task.prompt_tokens
        assert len(reply) + 1 <= task.reply_tokens


def test_the_answer_itself_earns_everything(task: Task) -> None:
    rng = Random(6)
    lead = "7+8=15>" if isinstance(task, ArithmeticTask) else ""
    for question in [task.question(rng) for _ in range(100)]:
        assert task.reward(question, lead + question.answer) == 1.0


@pytest.mark.parametrize("reply", ["", "?", "\x00", "booked", ">", "SELECT", "drop table staff", "é" * 5000])
def test_nonsense_earns_nothing(task: Task, reply: str) -> None:
    assert task.reward(task.question(Random(7)), reply) == 0.0


def test_the_same_seed_draws_the_same(task: Task) -> None:
    again = type(task)(3)  # type: ignore[call-arg]
    assert [task.demonstration(Random(n)) for n in range(50)] == [again.demonstration(Random(n)) for n in range(50)]


def test_teachers_of_the_two_that_learn_by_reward_are_often_but_not_always_right() -> None:
    for sloppy in TASKS[:2]:
        earned = [taught(sloppy, seed) for seed in range(300)]
        assert 0.3 < sum(earned) / len(earned) < 0.8


def taught(task: Task, seed: int) -> float:
    """What a demonstration would earn. The same numbers draw the same prompt, with an answer or with a reply."""
    asked, shown = task.question(Random(seed)), task.demonstration(Random(seed))
    assert asked.prompt == shown.prompt
    return task.reward(asked, shown.reply)


# -------------------------------------------------------------------------------------------- arithmetic


@given(st.integers(10, 99), st.integers(1, 5))
def test_working_without_a_slip_is_right(left: int, right: int) -> None:
    reply = worked(str(left), str(right), Random(0))
    assert ArithmeticTask(0).reward(Question(f"{left}+{right}=", str(left + right)), reply) == 1.0


@given(st.integers(10, 99), st.integers(1, 5), st.integers(0, 1), st.integers())
def test_a_slip_in_any_column_makes_it_wrong(left: int, right: int, slip_at: int, seed: int) -> None:
    reply = worked(str(left), str(right), Random(seed), slip_at)
    assert ArithmeticTask(0).reward(Question(f"{left}+{right}=", str(left + right)), reply) == 0.0


def test_only_the_number_at_the_end_of_a_sum_counts() -> None:
    question = Question("47+8=", "55")
    task = ArithmeticTask(0)
    assert task.reward(question, "7+8=16,4+0+1=5>55") == 1.0
    for wrong in ("55", "7+8=15,4+0+1=5>54", ">55>54", ">055", ">55,", ">５５"):
        assert task.reward(question, wrong) == 0.0


# -------------------------------------------------------------------------------------------- SQL


def test_another_query_with_the_same_rows_is_right_too() -> None:
    task = SqlTask(3)
    question = Question("how many in oslo?", "SELECT count(*) FROM staff WHERE city='oslo'")
    assert task.reward(question, "select count(age) from staff where 'oslo' = city") == 1.0
    assert task.reward(question, "SELECT count(*) FROM staff") == 0.0
    assert task.reward(question, "SELECT count(*) FROM staff WHERE city='oslo") == 0.0


def test_the_order_of_rows_does_not_matter_but_their_number_does(database: StaffDatabase) -> None:
    names = database.rows("SELECT name FROM staff")
    assert names is not None
    assert len(names) == 40
    assert database.rows("SELECT name FROM staff ORDER BY pay DESC") == names
    assert database.rows("SELECT name FROM staff LIMIT 39") != names


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; DROP TABLE staff",
        "DROP TABLE staff",
        "DELETE FROM staff",
        "UPDATE staff SET pay=0",
        "INSERT INTO staff VALUES ('x','x','x',1,1)",
        "CREATE TABLE other (x)",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "VACUUM INTO '/tmp/other.db'",
        "PRAGMA writable_schema=1",
        "BEGIN",
        "SELECT load_extension('/tmp/x.so')",
    ],
)
def test_a_query_that_does_more_than_read_is_refused_and_changes_nothing(database: StaffDatabase, query: str) -> None:
    before = database.rows("SELECT * FROM staff")
    assert database.rows(query) is None
    assert database.rows("SELECT * FROM staff") == before


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x FROM n",
        "SELECT count(*) FROM staff a, staff b, staff c, staff d, staff e, staff f",
        "SELECT a.name FROM staff a, staff b",
        "SELECT hex(zeroblob(1000000000))",
    ],
)
def test_a_query_without_end_or_measure_is_stopped(database: StaffDatabase, query: str) -> None:
    assert database.rows(query) is None


def test_a_value_that_would_be_huge_comes_back_as_nothing(database: StaffDatabase) -> None:
    assert database.rows("SELECT printf('%999999999d', 1)") == [(None,)]


def test_a_stopped_query_does_not_harm_the_next(database: StaffDatabase) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n"
    assert [database.rows(endless), database.rows("SELECT count(*) FROM staff")] == [None, [(40,)]]


@given(st.text(max_size=80))
def test_any_text_gets_a_verdict(query: str) -> None:
    rows = StaffDatabase(Random(1)).rows(query)
    assert rows is None or len(rows) <= 200


# -------------------------------------------------------------------------------------------- dialogue


def test_a_booking_earns_the_share_of_its_slots_that_are_right() -> None:
    task = DialogueTask(0)
    question = Question("", "booked: taxi in rome on friday for 12 people")
    assert task.reward(question, "booked: taxi in rome on friday for 12 people") == 1.0
    assert task.reward(question, "booked: taxi in oslo on friday for 12 people") == 0.75
    assert task.reward(question, "booked: boat in oslo on monday for 13 people") == 0.0
    assert task.reward(question, "booked: taxi in rome on friday for 12 people.") == 0.0


# -------------------------------------------------------------------------------------------- the tokenizer


@given(st.text("abcdx '=", max_size=40))
def test_text_survives_encoding(text: str) -> None:
    tokenizer = Tokenizer("abcdx '=", ("ab", "abc", " a", "='"))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_longest_word_is_taken_first() -> None:
    tokenizer = Tokenizer("abc", ("ab", "abc"))
    assert [len(tokenizer.encode(text)) for text in ("abc", "abab", "cab")] == [1, 2, 2]


def test_what_follows_the_end_is_not_read() -> None:
    tokenizer = Tokenizer("ab")
    assert tokenizer.decode([PAD, *tokenizer.encode("ab"), END, *tokenizer.encode("b"), PAD]) == "ab"


def test_a_character_that_is_not_in_the_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'abz' has characters"):
        Tokenizer("ab").encode("abz")
