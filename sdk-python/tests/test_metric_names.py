"""Names of metrics that other systems write differently: two different names never become the same."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from outbid._core.limits import NAME, sent_name
from outbid.integrations.loggers import _allowed_names

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300), unique=True, max_size=8)
ALIKE = st.lists(st.text("a_ @\n", min_size=1, max_size=3), unique=True, max_size=8)


@given(NAMES | ALIKE)
def test_names_stay_apart(names: list[str]) -> None:
    allowed = _allowed_names(names)
    assert len(set(allowed.values())) == len(names) == len(allowed)
    assert all(re.fullmatch(r"[\w\-. :/]+", name) for name in allowed.values())
    sent = {name: sent_name(name) for name in names}
    assert len(set(sent.values())) == len(names)
    assert all(name.isprintable() and len(name.encode()) <= NAME for name in sent.values())


def test_names_that_are_allowed_are_kept() -> None:
    assert _allowed_names(["acc@1", "acc_1", "acc 1"]) == {"acc_1": "acc_1", "acc 1": "acc 1", "acc@1": "acc_1_2"}
    assert sent_name("val acc") == "val acc" and sent_name("größe") == "größe"
