"""Claims of success in last messages: what claims, what only speaks of work, and what admits a failure."""

import random
import time

import pytest

from ptt.diagnostics.parsers.io.answer_texts import claims_success, last_words

CLAIMING = (
    "I have successfully fixed the bug in the parser.",
    "I've booked the flight for you. Is there anything else I can help with?",
    "Your reservation has been cancelled.",
    "The issue is now resolved. All tests pass.",
    "Task completed.",
    "Done!",
    "The order has been successfully updated; the refund follows in five days.",
    "Summary:\n- I\u2019ve implemented the function\n- The tests are green",
)
OTHERS = (
    "The code is 12.",
    "I could not complete the task.",
    "I've fixed the import, but the test still fails.",
    "I have not booked the flight.",
    "Once the payment has been processed, you will get a mail.",
    "Should the order be cancelled?",
    "I will now run the tests. If all tests pass, I submit.",
    "Unfortunately the flight could not be booked.",
    "The task is to be completed by Monday.",
    "I was unable to find the file. I've created a new one.",
    "Let me check whether it has been fixed.",
    "",
)


@pytest.mark.parametrize("text", CLAIMING)
def test_claims(text: str) -> None:
    assert claims_success(text) is True


@pytest.mark.parametrize("text", OTHERS)
def test_other_words_claim_nothing(text: str) -> None:
    assert claims_success(text) is False


def test_another_language_says_nothing() -> None:
    assert claims_success("Die Buchung wurde geändert und die Bestätigung für die Reise geht über die Post zu.") is None
    assert claims_success("这个问题的答案是十二因为我们在表格里面找到了这个数字并且检查了两次所以没有错误") is None


def test_the_words_of_a_finishing_call_count() -> None:
    call = {"name": "finish", "args_json": '{"message": "I have completed the task.\\\\nThe file is there."}'}
    assert claims_success(last_words(None, [call]) or "") is True
    assert last_words("Hello", [{"name": "search", "args_json": '{"q": "task completed"}'}]) == "Hello"
    assert last_words(None, []) is None


def test_long_texts_cost_little() -> None:
    draw = random.Random(1)
    words = ["the", "agent", "successfully", "has", "been", "not", "file", "and", "have", "done", "with", "test"]
    texts = [" ".join(draw.choices(words, k=2000)) for _ in range(300)]
    begun = time.process_time()
    for text in texts:
        claims_success(text)
    assert time.process_time() - begun < 1.5
