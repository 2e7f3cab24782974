"""How each write changes the tables; always within a transaction of the caller's."""

from __future__ import annotations

import sqlite3

from openrl.store.tables import column, columns, insert, table, values
from openrl.store.writes import Add, Answer, Change, Expire, MadeDurable, Remove, Write

_ANSWER = """
UPDATE request SET state = ?, result_type = ?, error = ?, category = ?, answered_us = ?, attempts = 0
WHERE request_id = ? AND state = 'waiting'
"""
_PROGRESS = """
UPDATE model SET attempts = 0, recoveries = 0
WHERE model_id = (SELECT model_id FROM request WHERE request_id = ?) AND (attempts > 0 OR recoveries > 0)
"""
_NEVER_AGAIN = """
DELETE FROM payload WHERE request_id = ? AND EXISTS (
    SELECT 1 FROM request WHERE request_id = ?1 AND (NOT mutates OR state = 'failed'))
"""
_DURABLE = "UPDATE model SET durable_seq = ?, durable_folder = ?, attempts = 0, recoveries = 0 WHERE model_id = ?"
_HELD = "DELETE FROM payload WHERE request_id IN (SELECT request_id FROM request WHERE model_id = ? AND seq <= ?)"
_OLD = "SELECT request_id FROM request WHERE state = 'done' AND answered_us < ?"


def apply(db: sqlite3.Connection, write: Write) -> None:
    match write:
        case Add(row=row, replace=replace):
            db.execute(insert(type(row), replace), values(row))
        case Change():
            _change(db, write)
        case Remove(table=kind, key=key):
            db.execute(f"DELETE FROM {table(kind)} WHERE {columns(kind)[0]} = ?", (key,))
        case Answer():
            _answer(db, write)
        case MadeDurable(model_id=model_id, seq=seq, folder=folder):
            db.execute(_DURABLE, (seq, folder, model_id))
            db.execute(_HELD, (model_id, seq))
        case Expire():
            _expire(db, write)


def _change(db: sqlite3.Connection, write: Change) -> None:
    sets = ", ".join(f"{name} = {name} + ?" if write.grows else f"{name} = ?" for name in write.values)
    wanted = [column(write.table, name, value) for name, value in write.values.items()]
    db.execute(f"UPDATE {table(write.table)} SET {sets} WHERE {columns(write.table)[0]} = ?", (*wanted, write.key))


def _answer(db: sqlite3.Connection, write: Answer) -> None:
    state = "failed" if write.error is not None else "done"
    row = (state, write.result_type, write.error, write.category, write.now_us, write.request_id)
    if not db.execute(_ANSWER, row).rowcount:
        return
    if write.result is not None:
        db.execute("INSERT INTO result VALUES (?, ?)", (write.request_id, write.result))
    db.execute(_PROGRESS, (write.request_id,))
    db.execute(_NEVER_AGAIN, (write.request_id,))


def _expire(db: sqlite3.Connection, write: Expire) -> None:
    db.execute(f"DELETE FROM result WHERE request_id IN ({_OLD})", (write.results_us,))
    db.execute("UPDATE request SET state = 'expired' WHERE state = 'done' AND answered_us < ?", (write.results_us,))
    db.execute("DELETE FROM once WHERE created_us < ?", (write.results_us,))
    db.execute("DELETE FROM request WHERE sampler_id IS NOT NULL AND answered_us < ?", (write.samples_us,))
