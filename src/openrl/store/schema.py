"""The tables of the SQLite store, and how a file of an older version becomes one of this.

`MIGRATIONS[n]` leads from version n to n + 1; what was released is never edited, a change is a new entry. The file's
`user_version` is its version, its `application_id` says that it is ours.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from openrl.errors import StoreInvalid

APPLICATION_ID = 0x4F70526C

_FIRST = """
CREATE TABLE key (key_hash TEXT PRIMARY KEY, key_id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    created_us INTEGER NOT NULL, revoked_us INTEGER);
CREATE TABLE session (session_id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_us INTEGER NOT NULL,
    last_seen_us INTEGER NOT NULL, tags TEXT NOT NULL, user_metadata TEXT NOT NULL, sdk_version TEXT NOT NULL,
    display_name TEXT, project_id TEXT, ended_us INTEGER, end_reason TEXT, end_detail TEXT);
CREATE INDEX session_owner ON session (owner, created_us);
CREATE TABLE model (model_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, owner TEXT NOT NULL, spec TEXT NOT NULL,
    created_us INTEGER NOT NULL, last_request_us INTEGER NOT NULL, source TEXT NOT NULL, source_path TEXT,
    source_optimizer INTEGER NOT NULL, user_metadata TEXT, durable_seq INTEGER NOT NULL, durable_folder TEXT NOT NULL,
    attempts INTEGER NOT NULL, recoveries INTEGER NOT NULL, lost TEXT, lost_category TEXT);
CREATE INDEX model_owner ON model (owner, created_us);
CREATE INDEX model_session ON model (session_id);
CREATE TABLE request (request_id TEXT PRIMARY KEY, owner TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
    digest BLOB NOT NULL, created_us INTEGER NOT NULL, model_id TEXT, sampler_id TEXT, mutates INTEGER NOT NULL,
    settles INTEGER NOT NULL, seed INTEGER, size INTEGER NOT NULL, state TEXT NOT NULL, result_type TEXT, error TEXT,
    category TEXT, answered_us INTEGER, attempts INTEGER NOT NULL);
CREATE UNIQUE INDEX request_model ON request (model_id, seq) WHERE model_id IS NOT NULL;
CREATE UNIQUE INDEX request_sampler ON request (sampler_id, seq) WHERE sampler_id IS NOT NULL;
CREATE INDEX request_waiting ON request (state) WHERE state = 'waiting';
CREATE INDEX request_answered ON request (answered_us) WHERE state = 'done';
CREATE INDEX request_sampled ON request (answered_us) WHERE sampler_id IS NOT NULL;
CREATE TABLE payload (request_id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE result (request_id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE sampler (sampler_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, owner TEXT NOT NULL,
    base_model TEXT NOT NULL, created_us INTEGER NOT NULL, last_used_us INTEGER NOT NULL, folder TEXT NOT NULL,
    model_path TEXT, ephemeral INTEGER NOT NULL, freed INTEGER NOT NULL);
CREATE INDEX sampler_session ON sampler (session_id);
CREATE INDEX sampler_folder ON sampler (folder) WHERE folder != '';
CREATE TABLE checkpoint (path TEXT PRIMARY KEY, model_id TEXT NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL,
    name TEXT NOT NULL, folder TEXT NOT NULL, size_bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
    spec TEXT NOT NULL, expires_us INTEGER, public INTEGER NOT NULL, user_metadata TEXT);
CREATE INDEX checkpoint_owner ON checkpoint (owner, created_us);
CREATE INDEX checkpoint_folder ON checkpoint (folder);
CREATE INDEX checkpoint_model ON checkpoint (model_id, created_us);
CREATE TABLE once (once_key TEXT PRIMARY KEY, answer TEXT NOT NULL, created_us INTEGER NOT NULL);
"""

MIGRATIONS = (_FIRST,)
VERSION = len(MIGRATIONS)


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version; one transaction a step, so that a step is taken whole or not at all."""
    version = read_version(db, path)
    for number in range(version, VERSION):
        db.executescript(
            f"BEGIN IMMEDIATE;{MIGRATIONS[number]}PRAGMA user_version = {number + 1};"
            f"PRAGMA application_id = {APPLICATION_ID};COMMIT;"
        )


def read_version(db: sqlite3.Connection, path: Path) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    application = db.execute("PRAGMA application_id").fetchone()[0]
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreInvalid(
            f"{path}: this is an SQLite file of something else, not a store of openrl: name another file"
        )
    if version > VERSION:
        raise StoreInvalid(
            f"{path}: schema version {version} is newer than {VERSION}, the newest that this openrl reads: upgrade it"
        )
    return version
