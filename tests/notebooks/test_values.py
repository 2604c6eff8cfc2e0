"""What travels between a real kernel and its ranks, and how it is named when it cannot."""

from __future__ import annotations

import re
import sys

import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain

pytestmark = pytest.mark.timeout(120)

SETUP = """
import dataclasses, functools, io, os, threading, typing, numpy, torch
from notebook_accel import Accelerator, notebook_launcher
def launch(function, *args, count=2):
    return notebook_launcher(function, args, num_processes=count, output="quiet")
"""


@pytest.fixture(scope="module")
def shared():
    with kernel() as running:
        running.run(SETUP)
        yield running


def refused(shared, code, error="CannotTravelError"):
    """The last line of what a cell raised."""
    ran = shared.run(code, ok=False)
    assert ran.error == error, ran.traceback
    return plain(ran.traceback).rstrip().rpartition(f"{error}: ")[2]


def test_functools_helpers_from_a_cell(shared):
    shared.run(
        """
        @functools.cache
        def cached(n): return n * factor
        @functools.lru_cache(maxsize=3, typed=True)
        def bounded(n): return cached(n) + 1
        @functools.singledispatch
        def kind(value): return "thing"
        @kind.register
        def _(value: int): return "number"
        @kind.register(torch.Tensor)
        def _(value): return "tensor"
        @functools.wraps(bounded)
        def wrapped(n): return bounded(n)
        factor = 2
        cached(1), bounded(1), kind(1)
        def uses():
            parameters = bounded.cache_parameters()
            first = cached.cache_info().currsize
            return wrapped(4), cached(4), parameters, first, [kind(v) for v in ("", 1, torch.ones(1))]
        """
    )
    assert (
        shared.run("launch(uses)[1]").value == "(9, 8, {'maxsize': 3, 'typed': True}, 0, ['thing', 'number', 'tensor'])"
    )
    shared.run("factor = 5")
    assert shared.run("launch(uses)[1][:2]").value == "(21, 20)"


def test_typed_dicts_and_classes_with_slots(shared):
    shared.run(
        """
        class Row(typing.TypedDict):
            name: str
            size: typing.NotRequired[int] if hasattr(typing, "NotRequired") else int
        @dataclasses.dataclass(slots=True)
        class Point:
            x: int
            y: int = 2
            def total(self): return self.x + self.y
        @dataclasses.dataclass(slots=True, frozen=True)
        class Deep:
            point: Point
        class Plain:
            __slots__ = ("a", "_b")
            def __init__(self, a): self.a, self._b = a, 7
            def __eq__(self, other): return (self.a, self._b) == (other.a, other._b)
        class More(Plain):
            __slots__ = ("c",)
        def gives(row: Row, point, plain):
            more = More(3); more.c = 5
            assert point.total() == 9 and isinstance(point, Point) and not hasattr(point, "__dict__")
            return Row(name="n", size=row["size"] + 1), Point(point.x, 9), Deep(point), Plain(plain.a), more
        row, point, deep, plain_, more = launch(gives, Row(name="a", size=1), Point(7), Plain([1]))[1]
        """
    )
    assert (
        shared.run("row, point, deep").value
        == "({'name': 'n', 'size': 2}, Point(x=7, y=9), Deep(point=Point(x=7, y=2)))"
    )
    assert (
        shared.run(
            "type(point) is Point, type(deep.point) is Point, type(plain_) is Plain, type(more) is More, more.c, "
            "plain_ == Plain([1]), hasattr(more, '__dict__')"
        ).value
        == "(True, True, True, True, 5, True, False)"
    )


def test_other_kinds_of_classes(shared):
    shared.run(
        """
        import abc, collections, enum
        T = typing.TypeVar("T")
        class Named(typing.NamedTuple):
            a: int
            b: str = "x"
            def both(self): return f"{self.a}{self.b}"
        Old = collections.namedtuple("Old", "c d")
        class Flags(enum.Flag):
            A = 1
            B = 2
        class Base(abc.ABC, typing.Generic[T]):
            @abc.abstractmethod
            def name(self): ...
        @typing.runtime_checkable
        class Goes(typing.Protocol):
            def name(self): ...
        class Made(Base[int]):
            @functools.cached_property
            def slow(self): return 5
            @classmethod
            def kind(cls): return cls.__name__
            @functools.lru_cache(None)
            def twice(self, n): return n * 2
            @functools.singledispatchmethod
            def shown(self, value): return "thing"
            @shown.register
            def _(self, value: int): return "number"
            def name(self): return __class__.__name__
        def gives(named, made):
            calls = made.slow, made.kind(), made.twice(4), made.shown(1), made.shown(""), made.name(), named.both()
            return calls, isinstance(made, Base), isinstance(made, Goes), Named(7), Old(1, 2), Flags.A | Flags.B, made
        calls, based, goes, named, old, flags, made = launch(gives, Named(3), Made())[1]
        """
    )
    assert shared.run("calls").value == "(5, 'Made', 8, 'number', 'thing', 'Made', '3x')"
    assert shared.run("based, goes, named, old, flags is Flags.A | Flags.B").value == (
        "(True, True, Named(a=7, b='x'), Old(c=1, d=2), True)"
    )
    assert shared.run("type(named) is Named, type(old) is Old, type(made) is Made").value == "(True, True, True)"


def test_objects_that_ask_an_inner_one(shared):
    shared.run(
        """
        class Wrapper:
            def __init__(self, inner): self.inner, self.own = inner, 1
            def __getattr__(self, name): return getattr(self.inner, name)
        wrapped = Wrapper(Wrapper([1, 2, 2]))
        results = notebook_launcher(lambda: (wrapped.count(2), Wrapper(wrapped)), num_processes=2)
        """
    )
    assert shared.run("results[1][0], results[1][1].inner.inner.inner, results[1][1].own").value == "(2, [1, 2, 2], 1)"


def test_what_a_method_a_partial_or_an_object_carries_along_is_named(shared):
    shared.run(
        """
        class Trainer:
            def __init__(self): self.lock = threading.Lock(); self.options = {"rate": 1}
            def train(self): return 1
            def __call__(self): return 2
        def takes(value, key=None): return value
        """
    )
    text = refused(shared, "launch(Trainer().train)")
    assert text.startswith("`train` belongs to an object: `self`.lock: a _thread.lock cannot be sent to worker")
    text = refused(shared, "launch(functools.partial(takes, key=[Trainer()]))")
    assert text.startswith("argument `key` of the partial `takes`[0].lock: a _thread.lock")
    text = refused(shared, "launch(functools.partial(takes, threading.Lock()))")
    assert text.startswith("argument 1 of the partial `takes`: a _thread.lock")
    assert refused(shared, "launch(Trainer())").startswith("`Trainer`.lock: a _thread.lock")
    assert shared.run("list(launch(functools.partial(takes, 4)))").value == "[4, 4]"
    shared.run("class Ready:\n    def __init__(self): self.value = 3\n    def go(self): return self.value")
    assert shared.run("list(launch(Ready().go))").value == "[3, 3]"


def test_an_accelerator_of_the_notebook_is_to_be_created_inside(shared):
    shared.run("accelerator = Accelerator()\ndef uses(): return accelerator.process_index")
    text = refused(shared, "launch(uses)")
    assert "`uses` uses the notebook variable `accelerator`" in text
    assert "create it inside the function" in text
    assert "._" not in text
    text = refused(shared, "launch(lambda value: 1, accelerator)")
    assert text.startswith("argument 1 of `args`: ")
    assert "create it inside the function" in text
    assert "._" not in text


def test_what_is_inside_of_prepared_loaders_is_not_named(shared):
    shared.run(
        """
        def prepared(): return Accelerator().prepare(torch.utils.data.DataLoader(torch.arange(8), batch_size=2))
        """
    )
    for code, where in (
        ("launch(len, prepared())", "argument 1 of `args`: "),
        ("launch(prepared)", "the result: "),
        ("launch(lambda: [prepared()])", "the result[0]: "),
    ):
        text = refused(shared, code)
        assert text.startswith(where), text
        assert "._" not in text.partition(" cannot be sent")[0].partition(": a ")[0]


def test_a_prepared_model_arrives_as_the_model(shared):
    shared.run(
        """
        def trained():
            accelerator = Accelerator()
            model = accelerator.prepare(torch.nn.Linear(3, 2))
            return model, {"inside": [model]}
        model, rest = launch(trained)[1]
        """
    )
    assert shared.run("type(model) is torch.nn.Linear, rest['inside'][0] is model").value == "(True, True)"
    assert shared.run("list(model(torch.ones(1, 3)).shape)").value == "[1, 2]"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("(n for n in range(3))", "['it']: a builtins.generator"),
        ("open(os.devnull)", "['it']: a _io.TextIOWrapper"),
        ("open(os.devnull, 'rb', buffering=0)", "['it']: a _io.FileIO"),
        ("threading.Lock()", "['it']: a _thread.lock"),
    ],
)
def test_results_that_cannot_travel_are_named(shared, value, says):
    text = refused(shared, f"launch(lambda: {{'it': {value}}})")
    assert re.match(rf"the result{re.escape(says)} cannot be sent to the notebook", text)
    assert text.endswith("[ranks 0, 1 of 2]")  # once for all
    assert "return plain data or tensors instead" in text


def test_tensors_of_unusual_kinds(shared):
    shared.run(
        """
        def kinds():
            small = [torch.arange(6).to(t).view(2, 3) for t in (torch.uint16, torch.uint32, torch.bfloat16, torch.bool)]
            eight = [torch.arange(6.).to(t) for t in (torch.float8_e4m3fn, torch.float8_e5m2)]
            large = [torch.arange(300_000).to(t) for t in (torch.uint16, torch.bfloat16, torch.float8_e4m3fn)]
            sparse = torch.eye(3).to_sparse()
            other = [sparse, torch.eye(4).to_sparse_csr(), torch.empty(0, 3), torch.tensor(1 + 2j), torch.ones(2, 3).T]
            leaf = torch.ones(2, requires_grad=True)
            return [*small, *eight, *large, *other, leaf, torch.nn.Parameter(torch.zeros(2))]
        def same(a, b):
            dense = lambda t: t.to_dense() if t.layout is not torch.strided else t
            raw = lambda t: dense(t.detach()).contiguous().reshape(-1).view(torch.uint8)
            return (a.dtype, a.layout, a.shape, a.requires_grad, type(a)) == (
                b.dtype, b.layout, b.shape, b.requires_grad, type(b)) and torch.equal(raw(a), raw(b))
        def checked(there):
            return all(map(same, there, kinds())), kinds()
        results = launch(checked, kinds())
        """
    )
    assert shared.run("[r[0] for r in results], [all(map(same, r[1], kinds())) for r in results]").value == (
        "([True, True], [True, True])"
    )
    assert shared.run("leaf = results[0][1][-2]; (leaf * 2).sum().backward(); leaf.grad.tolist()").value == "[2.0, 2.0]"


@pytest.mark.parametrize("size", [4, 100_000])
def test_tensors_that_share_memory_share_it_there(shared, size):
    shared.run(
        f"""
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding({size}, 4)
                self.head = torch.nn.Linear(4, {size}, bias=False)
                self.head.weight = self.embed.weight
        def shares(model, views):
            left, right = views
            left[0] = -1.0
            assert right[0] == -1.0 and model.head.weight is model.embed.weight
            return model, (left, right)
        base = torch.zeros({size})
        model, (left, right) = launch(shares, Tied(), (base[:], base.view(-1)))[1]
        left[1] = 5.0
        """
    )
    assert shared.run("model.head.weight is model.embed.weight, right[:2].tolist(), base.sum().item()").value == (
        "(True, [-1.0, 5.0], 0.0)"
    )


def test_numpy_arrays_of_all_kinds(shared):
    shared.run(
        """
        def arrays(n):
            records = numpy.zeros(n, dtype=[("name", "U4"), ("size", "<f4"), ("at", "<i2", (2,))])
            records["name"], records["size"], records["at"][:, 1] = "abc", numpy.arange(n), 7
            masked = numpy.ma.masked_array(numpy.arange(n), numpy.arange(n) % 2)
            return [records, records["size"], masked, numpy.arange(n)[::-1], numpy.asfortranarray(numpy.ones((n, 3))),
                    numpy.array(["a", None], dtype=object), numpy.arange(n).astype("datetime64[s]"), numpy.float16(3)]
        def same(a, b):
            return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
        def checked(*there):
            writable = [array.flags.writeable for part in there for array in part[:-1]]
            return [[same(a, b) for a, b in zip(part, arrays(len(part[0])))] for part in there], all(writable), there
        results = launch(checked, arrays(5), arrays(80_000))
        """
    )
    assert shared.run("all(all(part) for r in results for part in r[0]), all(r[1] for r in results)").value == (
        "(True, True)"
    )
    assert shared.run("[all(map(same, part, arrays(len(part[0])))) for part in results[1][2]]").value == "[True, True]"


def test_a_small_part_of_a_large_tensor_comes_alone(shared):
    shared.run(
        """
        def parts():
            large = torch.zeros(5_000_000)
            return large[:10], {"row": large.view(1000, -1)[3]}, large[:9].requires_grad_()
        first, rows, leaf = launch(parts)[1]
        """
    )
    sizes = shared.run("[part.untyped_storage().nbytes() for part in (first, rows['row'], leaf)], leaf.requires_grad")
    assert sizes.value == "([40, 20000, 36], True)"


def test_exceptions_that_cannot_travel_as_they_are_keep_their_type(shared):
    shared.run(
        """
        class Holding(RuntimeError):
            def __init__(self, text, lock):
                super().__init__(text); self.lock = lock
        class TwoArguments(ValueError):
            def __init__(self, code, *, where): super().__init__(f"{code} at {where}")
        def raises(which):
            if which == 0: raise Holding("held", threading.Lock())
            if which == 1: raise TwoArguments(4, where="here")
            if which == 2: raise OSError(2, "no such thing", "a file")
            if which == 3: raise KeyError(threading.Lock())
            error = ImportError("odd"); error.generator = (n for n in ()); raise error
        def caught(which):
            try: launch(raises, which)
            except Exception as error: return error
        """
    )
    assert "held" in shared.run("e = caught(0); print(isinstance(e, Holding), e)").stdout
    for which, kind in enumerate(("Holding", "TwoArguments", "FileNotFoundError", "KeyError", "ImportError")):
        ran = shared.run(
            f"error = caught({which}); isinstance(error, {kind}), type(error).__name__, error.rank in (0, 1)"
        )
        assert ran.value == f"(True, '{kind}', True)"
    assert "4 at here" in shared.run("str(caught(1))").value
    assert shared.run("error = caught(2); error.errno, error.filename").value == "(2, 'a file')"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_exception_groups(shared):
    shared.run(
        """
        def several():
            raise ExceptionGroup("two went wrong", [ValueError("first"), KeyError("second")])
        """
    )
    ran = shared.run(
        """
        try: launch(several)
        except* ValueError as group: print("values", group.exceptions)
        except* KeyError as group: print("keys", group.exceptions)
        """
    )
    assert "values (ValueError('first'" in ran.stdout
    assert "keys (KeyError('second'" in ran.stdout
    ran = shared.run("launch(several)", ok=False)
    text = plain(ran.traceback + ran.stderr)  # IPython prints groups, with all that is in them
    assert "two went wrong" in text
    assert "KeyError: 'second'" in text
