"""Programs that are asked a case a line, both sides in turn, and cells of the tables that compare them: for gpu_speed.py and gpu_training_speed.py."""
import json
import subprocess
import tempfile
from queue import Empty, SimpleQueue
from statistics import median
from threading import Thread

MIB = 2**20
# How long a side may take for an answer, after which its GPU is taken to hang: compiling a model takes PyTorch about a minute.
ANSWER_LIMIT_S = 150


class Side:
    """A program that answers a case a line."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.process = None

    def absence(self):
        """Exit code and last words of the program where it cannot be asked."""
        try:
            tried = subprocess.run(self.command, input="", capture_output=True, text=True, timeout=ANSWER_LIMIT_S)
        except subprocess.TimeoutExpired:
            return 1, f"it does not start within {ANSWER_LIMIT_S} s"
        return (tried.returncode, (tried.stderr.strip().splitlines() or ["it does not say why"])[-1]) if tried.returncode else None

    def ask(self, case, limit_s=ANSWER_LIMIT_S):
        """The answer, or why there is none, as `error`; then the next case finds a new process, as a GPU that has failed may go on failing."""
        if self.process is None:
            self.start()
        answer = self.answer(case, limit_s)
        if answer.get("error"):
            self.end()
        return answer

    def start(self):
        self.words = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, text=True)
        self.lines = SimpleQueue()
        Thread(target=pass_on, args=(self.process.stdout, self.lines), daemon=True).start()

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def answer(self, case, limit_s):
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
            return json.loads(self.lines.get(timeout=max(limit_s, 0.1)))
        except Empty:
            return {"error": f"no answer within {limit_s:.0f} s"}
        except (BrokenPipeError, json.JSONDecodeError):
            return {"error": f"the program ended: {self.last_words()}"}

    def last_words(self):
        """The exit code of a program that has closed its output, and the last line that it said."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self.words.seek(0)
        return f"{code}, {(self.words.read().strip().splitlines() or ['without a word'])[-1][:300]}"


def pass_on(stream, lines):
    """Each line as it comes, and nothing for the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def medians(rounds):
    """Of each number over the rounds; other values, and those of a round with an error, as they are."""
    failed = next((each for each in rounds if each.get("error")), None)
    if failed:
        return failed
    combine = lambda values: (
        medians(values) if isinstance(values[0], dict) else median(values) if isinstance(values[0], (int, float)) else values[0]
    )
    return {name: combine([each[name] for each in rounds]) for name in rounds[0]}


def take_turns(sides, rounds):
    """What each side answers, by its name: `sides` are asked in order, again and again, but for one that failed."""
    answers = {name: [] for name in sides}
    for _ in range(rounds):
        for name, ask in sides.items():
            if not any(answer.get("error") for answer in answers[name]):
                answers[name].append(ask())
    return {name: medians(answers[name]) for name in sides}


def cell(number, unit=""):
    return "" if number is None else f"{number:.3g}{unit}" if abs(number) < 1000 else f"{number:.0f}{unit}"


def verdict(is_reached, goal):
    return f"{goal}: {'reached' if is_reached else '**missed**'}"


def in_a_row(cells):
    return f"| {' | '.join(str(text).replace('|', '/') for text in cells)} |"
