"""The status of a session as a table that any page can show."""

from __future__ import annotations

from notebook_accel.session.status import RankStatus, SessionStatus

WAITS = {"name": "all_reduce", "count": 7, "waiting": True}
BUSY = RankStatus(0, "busy", "Cell In[3]", "Cell In[3], line 2, in <module>: f('<b>')", 61.0, WAITS, 5 << 20, 9 << 20)
DEAD = RankStatus(1, "dead", ending="Rank 1 was ended by SIGKILL.\nIts last lines were:\n  x")


def test_a_table_with_everything_escaped():
    page = SessionStatus([BUSY, DEAD, RankStatus(2, "idle")], False)._repr_html_()
    for text in ("2 ranks", "rank 0 busy, rank 1 dead, rank 2 idle", "busy, 61 s", "5 MB + 9 MB GPU"):
        assert text.replace("2 ranks", "3 ranks") in page
    assert "all_reduce 7, waiting" in page
    assert "f(&#x27;&lt;b&gt;&#x27;)" in page
    assert "<b>'" not in page
    assert "Cell In[3] · Cell In[3]" not in page
    assert "Rank 1 was ended by SIGKILL." in page
    assert "not in one group" in page
    assert "script" not in page


def test_all_alike_is_said_once():
    page = SessionStatus([RankStatus(rank, "idle") for rank in range(4)], True)._repr_html_()
    assert "4 ranks, all idle" in page
    assert "not in one group" not in page


def test_the_text_form_has_the_same():
    text = str(SessionStatus([BUSY, DEAD], False))
    assert "all_reduce 7, waiting" in text
    assert "Cell In[3], line 2, in <module>" in text
    assert text.splitlines()[0].split() == ["rank", "state", "seconds", "memory", "collective", "doing"]
