"""What cells define anew takes the place of what was there before."""

from __future__ import annotations

import ast
import gc
import re
import textwrap
from typing import Any

import pytest

from notebook_accel.pool.events import Exited, Raised, Returned
from notebook_accel.pool.frames import Report
from notebook_accel.pool.pending import Pending
from notebook_accel.session import swap


class Rank:
    """Runs cells as a rank does, statement by statement."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"__name__": "__main__"}
        self.swaps = swap.Swaps(self.space)

    def run(self, code: str) -> list[str]:
        """What is told of the cell."""
        code = textwrap.dedent(code)
        for place, statement in enumerate(ast.parse(code).body):
            compiled = compile(ast.Module([statement], []), f"<cell {place} of {hash(code)}>", "exec")
            self.swaps.before(compiled)
            try:
                exec(compiled, self.space)
            finally:
                self.swaps.after()
        return [f"{what}: {to_what}" for what, to_what in self.swaps.notes() if what != swap.SAME]

    def __getitem__(self, expression: str) -> Any:
        return eval(expression, self.space)


@pytest.fixture
def rank():
    gc.freeze()  # as the host does for the ranks: what was there before is not looked at
    yield Rank()
    gc.unfreeze()


def test_whoever_holds_a_function_calls_the_new_one(rank):
    rank.run("""
        def loss(x, scale=1): return x * scale
        held = [loss]
        def train(): return held[0](3)
    """)
    assert rank.run("def loss(x, scale=2, *, more=1):\n    'Twice.'\n    return x * scale + more") == ["Swapped: loss"]
    assert (rank["held[0](3)"], rank["train()"], rank["loss(3)"]) == (7, 7, 7)
    assert rank["held[0] is loss"]
    assert rank["held[0].__doc__"] == "Twice."
    assert rank["held[0].__kwdefaults__"] == {"more": 1}


def test_nothing_is_told_of_a_cell_that_says_the_same(rank):
    rank.run("def double(x):\n    return x * 2\nclass Net:\n    size = 3\n    def run(self): return 1\n")
    before = rank["double"]
    assert rank.run("\n\n# moved\ndef double(x):\n    return x * 2") == []
    assert rank.run("class Net:\n    size = 3\n\n    # moved\n    def run(self): return 1") == []
    assert rank["double"] is before
    assert before.__code__.co_firstlineno == 4, "tracebacks show the newest cell"


def test_another_name_keeps_the_old_function(rank):
    rank.run("def step(x): return x\nplain_step = step")
    told = rank.run("def step(x): return plain_step(x) + 1")
    assert told == ["Not swapped: step, since `plain_step` is the old one, and keeps its meaning"]
    assert (rank["step(1)"], rank["plain_step(1)"]) == (2, 1)


def test_a_function_that_wraps_the_old_one_does_not_replace_it(rank):
    rank.run("""
        import functools
        def add(function):
            @functools.wraps(function)
            def inner(x): return function(x) + 1
            return inner
        def step(x): return x
    """)
    assert rank.run("step = add(step)") == []
    assert rank["step(1)"] == 2
    assert rank.run("@add\ndef step(x, before=step): return before(x)") == []
    assert rank["step(1)"] == 3


def test_decorated_functions(rank):
    rank.run("""
        import functools
        def times(count):
            def wrap(function):
                @functools.wraps(function)
                def inner(x): return function(x) * count
                return inner
            return wrap
        @times(2)
        def step(x): return x
        held = [step]
    """)
    assert rank.run("@times(2)\ndef step(x): return x") == []
    assert rank.run("@times(2)\ndef step(x): return x + 1") == ["Swapped: step"]
    assert rank.run("@times(3)\ndef step(x): return x + 1") == ["Swapped: step"]
    assert (rank["held[0](1)"], rank["held[0].__wrapped__(1)"]) == (6, 2)
    (told,) = rank.run("def step(x): return x")
    assert re.match("Not swapped: step, since it is decorated differently", told)
    assert (rank["held[0](1)"], rank["step(1)"]) == (6, 1)


def test_a_function_that_becomes_a_generator(rank):
    rank.run("def step(x): return x\nheld = [step]")
    (told,) = rank.run("def step(x):\n    yield x")
    assert told.startswith("Not swapped: step, since a generator or coroutine cannot become a plain function")
    assert told.endswith("who holds the old one goes on with it")
    assert rank.run("def step(x): return x") == [], "nobody holds the generator"
    assert rank["held[0](1), step(1)"] == (1, 1)


def test_functions_of_libraries_are_never_changed(rank):
    rank.run("""
        import os.path
        def keep(chosen):
            def wrap(function):
                def inner(x): return chosen(x)
                inner.__qualname__ = function.__qualname__
                return inner
            return wrap
        @keep(os.path.basename)
        def name(x): return x
        class Net:
            name = os.path.basename
    """)
    rank.run("@keep(os.path.dirname)\ndef name(x): return x\nclass Net:\n    name = os.path.dirname")
    assert rank["os.path.basename('a/b')"] == "b"
    assert (rank["name('a/b')"], rank["Net.name('a/b')"]) == ("a", "a")


NET = """
    import functools
    class Base:
        def greet(self): return "base"
    class Net(Base):
        count = 1
        old_count = 5
        def __init__(self): self.size = 2
        def forward(self, x): return x
        def greet(self): return "net and " + super().greet()
        def leave(self): return 0
        @property
        def area(self): return self.size
        @area.setter
        def area(self, value): self.size = value
        @staticmethod
        def fixed(): return 1
        @classmethod
        def made(cls): return cls.__name__
    class Wide(Net):
        def forward(self, x): return super().forward(x) * 10
    net, wide = Net(), Wide()
    net.hook = net.forward
    Net.patched = lambda self: "patched"
"""


def test_instances_get_the_new_class(rank):
    rank.run(NET)
    kind = rank["Net"]
    told = rank.run("""
        class Net(Base):
            count = 2
            def __init__(self): self.size = 2
            def forward(self, x): return x + 1
            def greet(self): return "new net and " + super().greet()
            @property
            def area(self): return self.size ** 2
            @area.setter
            def area(self, value): self.size = value
            @staticmethod
            def fixed(): return 2
            @classmethod
            def made(cls): return cls.__name__ + "!"
            @functools.cached_property
            def slow(self): return super().greet() + "!"
            @functools.wraps(Base.greet)
            def added(self): return __class__.__mro__[1].__name__
    """)
    (line,) = told
    assert line.startswith("Swapped: Net.old_count (gone), Net.leave (gone), Net.count, Net.forward, Net.greet")
    assert line.endswith(" and 2 more")
    assert rank["Net"] is kind
    assert rank["net.count, net.forward(1), net.hook(1), wide.forward(1)"] == (2, 2, 2, 20)
    assert rank["net.greet(), net.area, net.fixed(), wide.made()"] == ("new net and base", 4, 2, "Wide!")
    assert rank["net.slow, net.added(), net.patched()"] == ("base!", "Base", "patched")
    assert not rank["hasattr(net, 'leave')"]
    rank.run("net.area = 3")
    assert rank["net.area"] == 9
    assert rank["isinstance(net, Net) and type(Net()) is type(net)"]


def test_a_method_that_was_kept_on_purpose_stays(rank):
    rank.run("class Net:\n    def run(self): return 1\nplain_run = Net.run\nnet = Net()")
    assert rank.run("class Net:\n    def run(self): return plain_run(self) + 1") == ["Swapped: Net.run"]
    assert rank["net.run()"] == 2


def test_a_class_that_is_registered_works_beside_the_one_that_was_changed(rank):
    cell = """
        @registry.append
        class Unused: pass
        class Net(Base):
            def __init_subclass__(cls): pass
            def run(self): return super().run() + {more}
        registry.append(Net)
        net = Net()
    """
    rank.run("registry = []\nclass Base:\n    def run(self): return 1")
    rank.run(cell.format(more=1))
    rank.run("first = net")
    rank.run(cell.format(more=2))
    assert rank["first.run(), registry[-1]().run()"] == (3, 3)


def test_an_init_that_changed_while_instances_live(rank):
    rank.run("class Net:\n    def __init__(self): self.a = 1\n    def run(self): return 1\nnet, other = Net(), Net()")
    again = "class Net:\n    def __init__(self): self.b = 1\n    def run(self): return {}"
    reason = "Not swapped: Net, since its __init__ has changed: "
    assert rank.run(again.format(2)) == [f"{reason}2 instances keep the old class, make them anew"]
    assert (rank["net.run()"], rank["Net().run()"]) == (1, 2)
    rank.run("del other")
    told = rank.run(again.format(3))
    assert told == ["Swapped: Net.run", f"{reason}1 instance keeps the old class, make it anew"]
    assert rank.run(again.format(4) + "\nnet = Net()") == ["Swapped: Net.run"]
    assert rank["net.run()"] == 4
    told = rank.run("class Net:\n    def __init__(self, a=1): self.b = a\n    def run(self): return 5\nnet = Net()")
    assert told == [], "the old instance is gone with its cell"


def test_an_init_that_changed_without_instances(rank):
    rank.run("class Net:\n    def __init__(self): self.a = 1\nkinds = {'net': Net}\nclass Wide(Net): pass")
    assert rank.run("class Net:\n    def __init__(self): self.a = 2") == ["Swapped: Net.__init__"]
    assert rank["kinds['net']().a, Wide().a"] == (2, 2)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("class A:\n    __slots__ = 'a',", "class A:\n    __slots__ = 'a', 'b'", "its __slots__ have changed"),
        ("class A: pass", "class A(B): pass", "its bases have changed"),
        ("class A: pass", "class A(metaclass=abc.ABCMeta): pass", "its metaclass has changed"),
        ("class A(metaclass=M): pass", "class A(metaclass=M):\n    b = 1", "its metaclass M may keep more"),
        ("class A:\n    def __new__(cls): return object.__new__(cls)", "class A: pass", "its __new__ has changed"),
        ("@dataclass\nclass A:\n    a: int = 1", "@dataclass\nclass A:\n    a: int = 2", "its __init__ has changed"),
    ],
)
def test_what_cannot_be_swapped_is_told_with_its_reason(rank, before, after, reason):
    rank.run("import abc\nfrom dataclasses import dataclass\nclass B: pass\nclass M(type): pass\n" + before)
    rank.run("item = A()")
    old = rank["A"]
    (told,) = rank.run(after)
    assert told.startswith(f"Not swapped: A, since {reason}")
    assert told.endswith("1 instance keeps the old class, make it anew")
    assert rank["A"] is not old
    assert rank["type(item)"] is old


def test_a_subclass_that_keeps_the_old_class_is_told_of(rank):
    rank.run("class B: pass\nclass A: pass\nclass Wide(A): pass")
    told = rank.run("class A(B): pass")
    assert told == [
        "Not swapped: A, since its bases have changed: Wide still derives from the old class, run its cell again"
    ]
    rank.run("class Wide(A): pass")
    gc.collect()
    assert rank.run("class A(B):\n    def run(self): return 1") == ["Swapped: A.run"]


def test_data_classes_and_abstract_ones(rank):
    rank.run("""
        import abc
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class Point:
            x: int = 1
            def norm(self): return self.x
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...
        point = Point()
    """)
    told = rank.run("""
        @dataclass(frozen=True)
        class Point:
            x: int = 1
            def norm(self): return abs(self.x) + 1
        class Shape(abc.ABC):
            def area(self): return 1
    """)
    assert told == ["Swapped: Point.norm, Shape.area"]
    assert rank["point.norm(), point == Point(1), repr(point), Shape().area()"] == (2, True, "Point(x=1)", 1)


def test_named_tuples(rank):
    cell = "class Pair(NamedTuple):\n    x: int = {}\n    def twice(self): return self.x * 2 + {}"
    rank.run("from typing import NamedTuple\n" + cell.format(1, 0) + "\npair = Pair(3)")
    assert rank.run(cell.format(1, 1)) == ["Swapped: Pair.twice"]
    assert rank["pair.twice(), pair.x, Pair()"] == (7, 3, (1,))
    (told,) = rank.run(cell.format(2, 2))
    assert told.startswith("Not swapped: Pair, since its __new__ has changed: 1 instance")


def test_a_cell_that_fails_has_swapped_what_came_before(rank):
    rank.run("class Net:\n    def run(self): return 1\nnet = Net()")
    with pytest.raises(ZeroDivisionError):
        rank.run("class Net:\n    def run(self): return 2\n1 / 0")
    assert rank["net.run()"] == 2
    assert rank.swaps.notes() == [("Swapped", "Net.run"), (swap.SAME, "Net")]


def test_another_name_keeps_the_old_class(rank):
    rank.run("class Net:\n    def run(self): return 1\nPlainNet = Net\nnet = Net()")
    (told,) = rank.run("class Net(PlainNet):\n    def run(self): return super().run() + 1")
    assert told.startswith("Not swapped: Net, since `PlainNet` is the old one, and keeps its meaning: 1 instance")
    assert rank["net.run(), Net().run()"] == (1, 2)


def test_a_class_that_cannot_be_changed_does_not_end_the_cell(rank):
    rank.run("class Net:\n    pass\nnet = Net()")
    (told,) = rank.run("class Net:\n    __name__ = 3")
    assert told.startswith("Not swapped: Net, since TypeError was raised: ")


def test_compiled_code_is_made_anew(rank):
    rank.run("""
        import torch
        class Net(torch.nn.Module):
            def forward(self, x): return x + 1
        net = Net()
        compiled = torch.compile(lambda x: net(x) * 2, backend="eager")
    """)
    assert rank["compiled(torch.ones(1)).item()"] == 4
    rank.run("class Net(torch.nn.Module):\n    def forward(self, x): return x + 2")
    assert rank["compiled(torch.ones(1)).item()"] == 6


def test_definitions_inside_of_a_cell_magic(rank):
    rank.space["run_cell_magic"] = lambda name, line, code: exec(code, rank.space)
    rank.run("def step(): return 1\nheld = [step]\nnumber = 3")
    assert rank.run("run_cell_magic('time', '', 'def step(): return 2\\nnumber = 4')") == ["Swapped: step"]
    assert rank["held[0]()"] == 2


def test_equal_news_of_ranks_are_one_line():
    report = Report("ValueError", "", (), None, "")
    pending = Pending(1, frozenset(range(5)))
    for rank in (0, 1, 3):
        pending.note(Returned(rank, 1, b"", notes=(("Swapped", "step"),)))
    pending.note(Raised(2, 1, report, notes=(("Swapped", "step"), ("Not swapped", "Net, since …"))))
    pending.note(Exited(4, -9))
    assert swap.lines(pending) == ["Swapped on ranks 0–3: step", "Not swapped on rank 2: Net, since …"]
