"""Events and actions are plain data: frozen, and made of what JSON can carry."""

import json
from typing import get_args

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.tenant import TenantSpec


def test_the_table_of_events_is_complete():
    assert set(ev.EVENTS.values()) == set(get_args(ev.Event))


def test_events_cannot_be_changed():
    event = ev.TokenAsked(1, 0)
    with pytest.raises(AttributeError):
        event.client = 2  # type: ignore[misc]


def test_actions_are_json():
    actions = [ev.Page("a", 0, 1), ev.Grant(1, 0, 1, 2, 3, 4, True, False), ev.WakeAt(5), ev.Welcome(1)]
    assert json.loads(json.dumps(actions)) == [list(action) for action in actions]
    assert json.loads(json.dumps(ev.TenantAdded(TenantSpec("a")))) == [["a", 0, 1_000_000, 0, False, [0]]]
