"""Cells as scripts have them: IPython's syntax in Python, or refused with the reason."""

from __future__ import annotations

import pytest

from notebook_accel.session.translate import HELPERS, CannotExport, indented, translate


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("x = 1", "x = 1"),
        ("x", "_show(x)"),
        ("x;", "x;"),
        ("print(x)", "print(x)"),
        ("x = 1\n(x,\n 'é')", "x = 1\n_show((x,\n 'é'))"),
        ("!ls {x} $HOME", "_shell(f'ls {x} $HOME')"),
        ("files = !ls", "files = _lines('ls')"),
        ("if x:\n    !echo 'é'; date\ny = 'ü'", "if x:\n    _shell(\"echo 'é'; date\")\ny = 'ü'"),
        ("%matplotlib inline\nimport torch", "pass  # %matplotlib inline\nimport torch"),
        ("x?", "pass  # %pinfo x"),
        ("%time y = f(3)", "y = f(3)"),
        ("%%time\ny = 3\ny", "y = 3\n_show(y)"),
        ("%%bash\nls", "_shell('ls\\n')"),
        ("text = '''\n%time\n!ls\n'''", "text = '''\n%time\n!ls\n'''"),
        ("async def f():\n    await g()", "async def f():\n    await g()"),
    ],
)
def test_what_it_becomes(cell, code):
    assert translate(cell).rstrip("\n") == code


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("%timeit f()", "%timeit has no meaning in a script"),
        ("x = %who_ls", "%who_ls has no meaning"),
        ("%%capture out\nf()", "%%capture has no meaning"),
        ("await f()", "awaits something outside of a function"),
        ("async with f() as g:\n    g()", "awaits something"),
        ("from __future__ import annotations", "__future__"),
        ("x = = 3", "not Python: invalid syntax"),
        ("!echo {x!}", "cannot be put into a script"),
        ("get_ipython().set_next_input('x')", "set_next_input has no meaning"),
    ],
)
def test_what_is_refused(cell, reason):
    with pytest.raises(CannotExport, match=reason.replace("(", "\\(")):
        translate(cell)


def test_indenting_keeps_texts_of_several_lines():
    code = "a = '''one\n  two\n'''\nif a:\n\n    b = f'''{a}\n{a}'''\n"
    space = {}
    exec("if True:\n" + indented(code), space)
    assert space["a"] == "one\n  two\n"
    assert space["b"] == "one\n  two\n\none\n  two\n"


def test_the_helpers_do_what_a_notebook_does(capfd):
    space = {}
    exec("\n".join(HELPERS.values()), space)
    space["_show"](None)
    space["_show"]("x")
    space["_shell"]("echo y")
    assert capfd.readouterr().out == "'x'\ny\n"
    assert space["_lines"]("echo a; echo b") == ["a", "b"]
