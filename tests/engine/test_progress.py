"""What is shown while training: a bar on a terminal, lines elsewhere, nothing where not wanted."""

import io
import re

import pytest

from chiaroscuro.engine.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def story(stream):
    with Progress(stream, steps=20, start=0, batch=8) as shown:
        for step in range(1, 21):
            shown.shown -= 1  # as if a second had gone by
            shown.step(step, (step - 1) // 10, 5.5 - step / 10)
            if step % 10 == 0:
                measures = {"online_knn": 0.75} if step == 10 else {}
                with shown.paused():
                    shown.epoch(step, step // 10 - 1, 5.0, measures)
        shown.say("done [not markup]")
    return shown


def test_lines():
    stream = io.StringIO()
    story(stream)
    one, two, last = stream.getvalue().splitlines()
    pattern = r"epoch 1, step 10/20, loss 5.0000, [\d,]+ samples/s, online_knn 0.750, \d+ s left"
    assert re.fullmatch(pattern, one)
    assert re.fullmatch(r"epoch 2, step 20/20, loss 5.0000, [\d,]+ samples/s, 0 s left", two)
    assert last == "done [not markup]"


def test_a_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    story(stream)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    frames = [frame.strip() for frame in re.split(r"[\r\n]+", plain) if frame.strip()]
    bar = r"epoch 1 \S+ +5/20 loss 5.0000, [\d,]+ samples/s, \d+ s left"
    assert any(re.fullmatch(bar, frame) for frame in frames), frames
    later = r"epoch 2 \S+ 15/20 loss 4.0000, [\d,]+ samples/s, online_knn 0.750, \d+ s left"
    assert any(re.fullmatch(later, frame) for frame in frames), frames
    assert "done [not markup]" in frames
    # one line remains of an epoch in which something was measured, none of the others
    assert sum(frame.startswith("epoch 1, step 10/20") for frame in frames) == 1
    assert not any(frame.startswith("epoch 2, step") for frame in frames)
    assert "\x1b[?25h" in stream.getvalue().rpartition("\x1b[?25l")[2]  # the cursor is back


def test_nothing():
    assert story(None).bar is None


def test_what_is_not_training_does_not_count(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("chiaroscuro.engine.progress.time.perf_counter", lambda: now[0])
    shown = Progress(None, steps=10, start=2, batch=8)
    now[0] += 4
    assert shown.rate(6) == pytest.approx(4 * 8 / 4)
    with shown.paused():
        now[0] += 7
        assert shown.seconds == pytest.approx(4)
    now[0] += 1
    assert shown.seconds == pytest.approx(5)


def test_a_long_epoch_is_not_silent_without_a_terminal():
    stream = io.StringIO()
    with Progress(stream, steps=20, start=0, batch=8) as shown:
        shown.step(1, 0, 5.0)
        assert stream.getvalue() == ""
        shown.shown -= 21
        shown.step(2, 0, 4.5)
        shown.step(3, 0, 4.0)
    assert re.fullmatch(r"epoch 1, step 2/20, loss 4\.5000, .* left\n", stream.getvalue())


def test_a_hundred_short_epochs_are_a_few_lines():
    """Without a terminal: the first, the last, those with measures, and others a second apart."""
    stream = io.StringIO()
    with Progress(stream, steps=100, start=0, batch=8) as shown:
        for epoch in range(100):
            if epoch == 60:
                shown.shown -= 2  # as if two seconds had gone by
            shown.epoch(epoch + 1, epoch, 1.0, {"online_knn": 0.5} if epoch == 29 else {})
    lines = [line.partition(",")[0] for line in stream.getvalue().splitlines()]
    assert {"epoch 1", "epoch 30", "epoch 61", "epoch 100"} <= set(lines)
    assert len(lines) < 50
